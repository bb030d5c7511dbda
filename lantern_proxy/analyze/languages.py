"""Stop words of questions in languages other than English. Pure.

If all words of a question counted, "what is the ... of" alone could outweigh the name that is asked for.
"""

# ruff: noqa: RUF001 - Cyrillic letters are meant

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

_FUNCTION_WORDS = tuple(
    frozenset(words.split())
    for words in (
        # German
        """der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine ich du er sie es
        wir ihr mich mir dich dir ihm ihn uns euch mein meine meinen meiner dein deine sein seine unser unsere ist
        sind war waren bin hat haben habe hatte hatten wird werden wurde wurden kann können soll sollen muss wie
        was wer wen wem wann wo woher wohin warum wieso welche welcher welches welchen welchem für von vom zu zum
        zur mit bei beim nach aus auf in im an am um über unter vor seit bis durch ohne gegen als auch noch schon
        nur so dass wenn ob doch mal bitte""",
        # French
        """le la les l un une des du de d et ou mais ne pas je j tu il elle on nous vous ils elles me te se mon ma
        mes ton ta tes son sa ses notre nos votre vos leur leurs est sont était étaient a ai as ont avait avons
        avez être avoir que qu qui quoi dont où quand comment pourquoi combien quel quelle quels quelles est-ce
        qu'est-ce pour par avec sans dans sur sous chez en à au aux ce cet cette ces y c'est c qu'il qu'elle déjà
        plus si s'il plaît""",
        # Spanish
        """el la los las un una unos unas y o pero no yo tú él ella nosotros ellos ellas me te se nos mi mis tu tus
        su sus es son era eran fue fueron ser estar está están estaba ha han he hemos había tiene tienen tenía que
        qué quién quiénes cuál cuáles cuándo cuánto cuánta cuántos cuántas cómo dónde de del a al en con sin por
        para sobre desde hasta entre como si ya más muy este esta esto estos estas ese esa eso lo le les""",
        # Italian
        """il lo la i gli le l un uno una e o ma non io tu lui lei noi voi loro mi ti si ci vi mio mia miei tuo tua
        suo sua nostro nostra è sono era erano essere ha hanno ho abbiamo aveva avevano che chi cosa cos'è quale
        quali quando quanto quanta quanti quante come dove perché di del dello della dei degli delle d a al allo
        alla ai alle da dal dalla in nel nella nei con su sul sulla per tra fra se già più questo questa questi
        queste quello quella""",
        # Portuguese
        """o a os as um uma uns umas e ou mas não eu tu ele ela nós você vocês eles elas me te se meu minha meus
        minhas seu sua seus suas nosso nossa é são era eram foi foram ser estar está estão tem têm tinha há que
        quem qual quais quando quanto quanta quantos quantas como onde porquê porque de do da dos das em no na nos
        nas ao à aos às com sem por pelo pela para sobre entre até já mais este esta isto esse essa isso""",
        # Dutch
        """de het een en of maar niet geen ik jij je hij zij ze wij we jullie mij me jou hem haar ons mijn jouw zijn
        onze is was waren ben bent heeft hebben had hadden wordt worden werd kan kunnen moet wat wie wanneer waar
        waarom hoe welke welk voor van naar met bij uit op in aan om over onder tot door zonder als ook nog al dat
        die deze dit er""",
        # Polish
        """i lub ale nie ja ty on ona ono my wy oni mnie mi ciebie ci jego jej nas was ich mój moja moje twój twoja
        jest są był była było były być ma mają miał mam co kto kogo kiedy gdzie jak jaki jaka jakie jakiego jakiej
        który która które dlaczego czemu ile dla do od z ze w we na o po przy przez bez pod nad się to ten ta te
        tego tej czy już""",
        # Russian
        """и или но а не нет я ты он она оно мы вы они меня мне тебя тебе его ему её ей нас нам вас вам их им мой моя
        моё мои твой твоя наш наша ваш ваша свой своя был была было были быть есть имеет имеют имел что чего чему
        чём кто кого кому когда где куда откуда как какой какая какое какие какого какую каким каких который
        которая почему зачем сколько чей для от из с со в во на о об по при про без под над до у к ко за же ли бы
        это этот эта эти этого тот та те уже ещё""",
        # Ukrainian
        """і й та або але а не ні я ти він вона воно ми ви вони мене мені тебе тобі його йому її їй нас нам вас вам
        їх мій моя моє твій твоя наш ваш був була було були бути є має мають що чого кто хто кого коли де куди
        звідки як який яка яке які якого чому скільки чий для від із з зі у в на о об по при про без під над до к
        за чи це цей ця ці""",
        # Turkish
        """ve veya ama fakat değil yok var bir bu şu o ben sen biz siz onlar bana sana ona bize size benim senin onun
        bizim sizin ne nedir neye neden nasıl niçin niye kim kimin kime hangi hangisi nerede nereye nereden kaç zaman
        mi mı mu mü için ile gibi kadar de da ki daha çok en her şey olan olarak idi ise göre""",
        # Greek
        """ο η το οι τα του της των τον την τους τις και ή αλλά δεν μη μην εγώ εσύ αυτός αυτή αυτό εμείς εσείς αυτοί
        με σε μου σου μας σας του τι ποιος ποια ποιο ποιοι ποιες ποιους ποιον πότε πού που πώς πως γιατί πόσο πόσα πόσοι
        πόσες είναι ήταν είμαι έχω έχει έχουν είχε είχαν θα να από για στο στη στην στον στα στις στους ένας μια μία
        ένα κατά προς χωρίς πριν μετά ως όπως ότι αν""",
        # Arabic
        """و أو لكن لا ما لم لن ليس هل من إلى على في عن مع عند بعد قبل حتى بين هو هي هم نحن أنا أنت هذا هذه ذلك تلك
        ماذا متى أين كيف لماذا كم بكم أي أية الذي التي كان كانت يكون قد كل بعض غير إن أن لأن لي لك له لها لنا لكم""",
        # Hindi
        """और या लेकिन नहीं मत मैं तू तुम आप वह वे यह ये हम मेरा मेरी मेरे तुम्हारा आपका आपकी हमारा हमारी उसका उनके
        का की के को से में पर तक ने है हैं था थी थे हो होता होती क्या कौन कौनसा कब कहाँ कहां क्यों कैसे कितना कितनी कितने किस
        किसका किसको किससे लिए साथ भी ही तो कि जो""",
    )
)
"""Articles, pronouns, prepositions, auxiliaries and question words of languages other than English."""
_LEAST_FUNCTION_WORDS = 2


ANY_FUNCTION_WORDS = frozenset().union(*_FUNCTION_WORDS)


def function_words(words: Sequence[str], english: AbstractSet[str]) -> frozenset[str]:
    """Those of the question's language, detected by its own words; empty for English, or if it has too few of them.

    words: its words in lower case; english: the stop words of English, which the other lists must outnumber
    """
    question_words = frozenset(words)
    least = max(_LEAST_FUNCTION_WORDS, len(english & question_words) + 1)
    if len(question_words & ANY_FUNCTION_WORDS) < least:
        return frozenset()
    most = max(_FUNCTION_WORDS, key=lambda known: len(known & question_words))
    return most if len(most & question_words) >= least else frozenset()


_KOREAN = re.compile(r"[\uac00-\ud7a3]+")
_KOREAN_QUESTION_WORDS = re.compile(
    "(?:언제|어디|무엇|뭐|뭘|누구|누가|얼마|어떻게|어느|어떤|무슨|몇).*|왜"
    "|(?:하|되|됐|했|있|있었|인|할|될)(?:나|가|까)요|(?:있|없|했|됐)(?:어|지)요?|해요|하죠|주세요|알려줘|알려주세요|입니까|합니까"
)
"""Question words with any ending, and verbs without meaning of their own."""
_KOREAN_ENDS = re.compile(
    "(?<=..)(?:에서는|에서도|으로는|에게서|에서|에게|한테|까지|부터|으로|이랑|처럼|보다|마다|에는|에도|이에요|인가요|입니까"
    "|이죠|예요|이야|나요|은|는|이|가|을|를|에|의|도|로|와|과|만|랑|야|죠|요)$"
)
"""Particles and endings written together with a word, of which at least two characters must remain."""


def korean_stem(run: str) -> str:
    """A Korean word without its particle: "회의가" -> "회의"; empty for a question word. Other words are unchanged.

    In scripts without spaces each two characters are a term, and those across the border to a particle would match
    nothing.
    """
    if not _KOREAN.fullmatch(run):
        return run
    return "" if _KOREAN_QUESTION_WORDS.fullmatch(run) else _KOREAN_ENDS.sub("", run)
