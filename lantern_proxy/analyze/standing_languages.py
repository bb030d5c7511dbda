"""Standing instructions in languages other than English: "Antworte immer ...", "ne touche jamais ...". Pure.

Three forms, where the language has them: an order with always or never, "from now on", and one thing instead of
another. A mere statement ("Er kommt immer zu spät") is none, so an order must be visible in its first words.
"""

# ruff: noqa: RUF001 - letters of other scripts are meant

import re
from functools import cache

_SENTENCE_START = r"(?:^|[.!?:;\n\u3002\uff01\uff1f\u0964])\W{0,4}+(?=\w)"
_ORDERS = (
    # German: in an order the adverb follows the verb, which comes first; who is spoken of stands there otherwise
    r"(?:bitte |und |aber |also )*(?:(?:immer|niemals|nie)(?! (?:noch|wieder|mehr|mal|gut|so|war|ist|hat|habe|im)\b)"
    r"|(?!(?:ich|du|er|sie|es|wir|ihr|man|das|die|der|dies|und|aber|noch|fast|wie|was|wer|wo|ist|war|sind|bin|hat|habe"
    r"|haben|wird|wurde|kann|soll|so|auch|schon|wenn|weil|dass|hier|da|gibt|geht|ging|klingt|danke|gut|ja|nein)\b)"
    r"\w+(?: mir| uns| dabei| bitte| dir| sie)? (?:immer|niemals|nie)\b(?! (?:noch|mehr|wieder|so)\b)"
    r"|(?:fass|rühr|änder|lösch|schreib|nutz|benutz|verwend|mach|füg|installier|committ|push|bearbeit)e?"
    r"(?: bitte)? [^.?!\n]{1,60}\bnicht\b|(?:du|wir|sie) (?:sollst|darfst|musst|sollen|dürfen|müssen) (?:immer|nie)"
    r"|(?:kannst|könntest|würdest) du (?:mir |uns |bitte )*(?:immer|nie|niemals)\b"
    r"|wir \w+n (?:immer|niemals|nie)\b|(?:ab (?:jetzt|sofort|heute)|von (?:nun|jetzt) an|künftig|in zukunft)\b)",
    # French
    r"(?:s'il (?:te|vous) plaît,? |et |mais )*(?:(?:toujours|jamais)(?! (?:est|été|eu|vu|su|en|aussi|plus|dit)\b)"
    r"|(?!(?:est|es|suis|sont|était|ont|pas|comme|presque|depuis|pour|et|ou|mais|merci|oui|non)\b)\w+(?:-\w+)?"
    r" toujours\b"
    r"|n(?:e |')\w+ (?:\w+ )?jamais\b|ne (?:jamais|pas) \w+(?:er|ir|re)\b"
    r"|n(?:e |')(?:\w+ )?(?:touch|modifi|supprim|chang|utilis|écri|fai|met|ajout|employ)\w* (?:surtout )?pas\b"
    r"|(?:tu dois|vous devez|il faut|on|nous) (?:\w+ )?(?:toujours|jamais)\b"
    r"|(?:à partir de maintenant|désormais|dorénavant|à l'avenir)\b)",
    # Spanish, Portuguese, Italian
    r"(?:por favor,? |per favore,? |y |e |pero |mas |ma )*(?:(?:siempre|nunca|jamás|sempre)"
    r"(?! (?:he|ha|había|tuve|fue|es|está|foi|tive|que|me|lo|la|se|più|stato)\b)"
    r"|(?:responde|contesta|escribe|usa|utiliza|haz|pon|añade|agrega|comprueba|revisa|mantén|incluye|ejecuta|guarda|prueba"
    r"|responda|use|utilize|escreva|faça|coloque|adicione|verifique|mantenha|inclua|rode|rispondi|scrivi|fai|metti"
    r"|aggiungi|controlla|verifica|esegui|tieni)(?:me|mi)? (?:siempre|sempre)\b"
    r"|(?:no|não|non) (?:\w+ )?\w+ (?:nunca|jamás|mai)\b"
    r"|no (?:toques|cambies|borres|uses|modifiques|escribas|hagas|pongas|elimines|añadas)\b"
    r"|não (?:toque|mexa|mude|apague|use|altere|escreva|faça|remova)\b"
    r"|non (?:toccare|cambiare|cancellare|usare|modificare|scrivere|fare|aggiungere)\b"
    r"|(?:a partir de (?:ahora|agora)|de (?:ahora en adelante|agora em diante)|d'ora in (?:poi|avanti)|doravante)\b)",
    # Dutch
    r"(?:(?:altijd|nooit)(?! (?:al|weer|zo|geweest|meer|gedacht)\b)|(?!(?:ik|je|jij|hij|zij|ze|we|wij|het|dat|dit|er|is"
    r"|was|zijn|heeft|heb|kan|niet|bijna|nog|en|maar|zoals)\b)\w+ (?:altijd|nooit)\b|(?:vanaf nu|voortaan)\b)",
    # Polish
    r"(?:proszę,? )?(?:zawsze|nigdy nie \w+(?:aj|uj|ij|yj)(?:cie)?|\w+(?:aj|uj|ij|yj|sz)(?:cie)? zawsze"
    r"|nie (?:ruszaj|zmieniaj|usuwaj|dotykaj|używaj|pisz|dodawaj|rób)(?:cie)?|(?:od teraz|odtąd|od dziś))\b",
    # Russian and Ukrainian
    r"(?:пожалуйста,? |будь ласка,? |и |но |а )*(?:(?:всегда|завжди) \w+(?:[йиь]|те|ть)\b"
    r"|(?:никогда|ніколи) не \w+(?:[йиь]|те|ть)\b"
    r"|\w+(?:й|йте|и|ите|ь|ьте|іть) (?:мне |мені )?(?:всегда|завжди|только|лише)\b"
    r"|не (?:трогай|меняй|удаляй|изменяй|используй|пиши|добавляй|делай|чіпай|змінюй|видаляй|використовуй|додавай|роби)"
    r"|(?:с этого момента|отныне|впредь|с сегодняшнего дня|відтепер|надалі)\b)",
    # Turkish
    r"(?:lütfen )?(?:her zaman|daima|asla|bundan (?:sonra|böyle))\b",
    # Greek
    r"(?:παρακαλώ,? )?(?:να \w+(?: \w+)? πάντα|πάντα να|(?:μην|μη) |ποτέ μη|από (?:εδώ και πέρα|τώρα και στο εξής))",
    # Arabic and Hebrew
    r"(?:من فضلك |رجاء )?(?:دائم[اً]|أبد[اً]|لا ت\w+ أبد|[اأ]\w+ دائم"
    r"|لا (?:تلمس|تغير|تحذف|تستخدم|تعدل|تكتب)|من ال[آا]ن فصاعد)",
    r"(?:תמיד|אף פעם אל|לעולם אל|אל ת\w+|מעכשיו|מהיום)",
    # Hindi
    r"(?:कृपया )?(?:हमेशा|कभी (?:भी )?(?:मत|नहीं)|अब से|आगे से)",
    # Chinese, Japanese, Korean
    r"(?:请|請)?(?:总是|總是|始终|始終|一律|务必|務必|必须|必須|绝不|絕不|永远不要|永遠不要|绝对不要|不要|从现在起|從現在起|今后|今後|以后都|以後都)",
    r"(?:必ず|常に|絶対に|決して|これからは|いつも)",
    r"(?:항상|반드시|절대|앞으로는)",
)
_INSTEAD = (
    r"\b(?:nutz|verwend|benutz|nimm|nehm)\w*\b[^.?!\n]{1,40}\b(?:statt|anstatt|anstelle)\b",
    r"\b(?:utilis|emplo)\w+\b[^.?!\n]{1,40}\b(?:au lieu d|plutôt qu|à la place d)",
    r"\b(?:usa|use|usar|utiliza|utilize|utilice|utilizza)\b[^.?!\n]{1,40}\b"
    r"(?:en (?:vez|lugar) de|em vez d|ao invés d|invece di|al posto di)",
    r"\bgebruik\b[^.?!\n]{1,40}\bin plaats van\b",
    r"\bużywaj\w*\b[^.?!\n]{1,40}\bzamiast\b",
    r"\b(?:используй|пиши|ставь|бери|використовуй)\w*\b[^.?!\n]{1,40}\b(?:вместо|а не|замість)\b",
    r"\byerine\b[^.?!\n]{1,40}\bkullan(?:ın)?\b",
    r"\bχρησιμοπο\w+[^.;!\n]{1,40}\bαντί\b",
    r"استخدم[^.؟!\n]{1,40}(?:بدل|عوض)",
    r"\bהשתמש\w*[^.?!\n]{1,40}במקום",
    r"(?:की जगह|के बजाय)[^.?!\n\u0964]{1,40}(?:उपयोग|इस्तेमाल|प्रयोग)",
    r"कभी (?:भी )?मत|ないでください|しないで|てはいけない"
    r"|代わりに[^.\n\u3002]{1,40}使|使?用[^.\n\u3002]{1,30}(?:而不是|代替|不要用)"
    r"|(?:千万|永远|永遠|绝对|絕對)(?:不要|别|別)|대신[^.\n]{1,40}(?:사용|쓰)",
)
_HINTS = frozenset(
    """
    immer niemals nie nicht jetzt sofort heute nun zukunft statt anstatt anstelle jamais toujours pas
    maintenant lieu siempre nunca sempre mai partir ahora agora d'ora doravante toques cambies borres uses
    modifiques escribas hagas pongas elimines toccare cambiare cancellare usare modificare scrivere fare
    aggiungere vez lugar invece posto altijd nooit vanaf voortaan plaats zawsze nigdy ruszaj zmieniaj usuwaj
    dotykaj teraz zamiast zaman daima asla bundan yerine
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Every rule in ASCII letters contains one of these words: looking for them costs a tenth of matching the patterns."""
_OTHER_LETTERS = re.compile("[\u00c0-\u1fff\u3040-\ud7ff]")


def is_rule_in_other_language(text: str, low: str) -> bool:
    """Does it say, in another language than English, how something is always to be done? low: `text` folded"""
    return may_be_rule_in_other_language(low) and any(rule.search(text) for rule in _rules())


@cache
def _rules() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compiled on first use, since that takes a thirtieth of the start of `lantern serve`."""
    return re.compile(rf"{_SENTENCE_START}(?:{'|'.join(_ORDERS)})", re.I), re.compile("|".join(_INSTEAD), re.I)


def may_be_rule_in_other_language(low: str) -> bool:
    """May the text contain a rule? A fast check: False is certain, also for each piece of it."""
    if low.isascii():
        return not _HINTS.isdisjoint(low.split())
    return _OTHER_LETTERS.search(low) is not None
