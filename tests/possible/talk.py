"""What is talked about, in four languages: details, fillers, questions, summaries, and what clients say themselves."""
# ruff: noqa: RUF001

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Words and patterns of one language. {s}: whose detail, {t}: which, {v}: its value."""

    things: tuple[str, ...]
    values: tuple[str, ...]
    told: tuple[str, str]
    """Two ways of saying a detail: what is said in one may stand in a summary in the other."""
    asked: tuple[str, str]
    """A question and an order."""
    fillers: tuple[str, ...]
    system: str
    summary: tuple[str, str, str]
    """What it was about, what was settled ({}), what comes next."""
    summarise: str
    """A client's instruction to write one."""
    by_hand: str
    """A user's wish for one."""
    preamble: str
    title: str
    ideas: str
    greeting: str
    go_on: str
    nods: tuple[str, ...]
    """What users say when they let their model work."""
    space: str = " "


LANGUAGES = {
    "en": Language(
        things=("password", "opening hour", "colour", "contact person", "delivery address", "budget", "departure gate"),
        values=("amber", "copper", "violet", "walnut", "granite", "saffron", "pewter", "cobalt"),
        told=("The {t} of {s} is {v}.", "For {s}, the {t} is {v}."),
        asked=("What is the {t} of {s}?", "Write the {t} of {s} into the report."),
        fillers=(
            "Let us go on with the next point on the list.", "I looked at it again this morning and it seems fine.",
            "Please keep that in mind for later.", "That should be enough for now, thanks.",
            "We can come back to this after lunch.", "The other team has agreed with the plan.",
            "I would rather not change anything else today.", "It took a little longer than expected.",
        ),
        system="You are a patient assistant who keeps the books of a trading house and answers in full sentences.",
        summary=("So far the user and the assistant went through {}.", "Settled: {}", "Next: the rest of the list."),
        summarise="Write down what has been said above so that somebody else can go on with the work: the goal, what "
        "was settled, what is done and what is open. Keep names and numbers. Answer with the text only. ",
        by_hand="Please summarise our conversation so far.",
        preamble="Earlier in this conversation:",
        title="Generate a short title for this chat.",
        ideas="Suggest three follow-up questions the user may ask next.",
        greeting="Hello, shall we start?",
        go_on="Go on.",
        nods=("Go on.", "ok", "Yes, do that.", "continue"),
    ),
    "de": Language(
        things=("Kennwort", "Öffnungszeit", "Farbe", "Ansprechpartner", "Lieferadresse", "Budget", "Abfahrtsgleis"),
        values=("Bernstein", "Kupfer", "Veilchen", "Nussbaum", "Granit", "Safran", "Zinn", "Kobalt"),
        told=("Als {t} von {s} gilt {v}.", "Für {s} lautet der Eintrag {t}: {v}."),
        asked=("Was gilt als {t} von {s}?", "Trage {t} von {s} in den Bericht ein."),
        fillers=(
            "Machen wir mit dem nächsten Punkt auf der Liste weiter.", "Ich habe es heute früh noch einmal angesehen.",
            "Bitte behalte das für später im Kopf.", "Das sollte fürs Erste reichen, danke.",
            "Nach der Pause kommen wir darauf zurück.", "Das andere Team ist mit dem Plan einverstanden.",
            "Heute möchte ich sonst nichts mehr ändern.", "Es hat etwas länger gedauert als erwartet.",
        ),
        system="Du bist ein geduldiger Assistent, der die Bücher eines Handelshauses führt und in Sätzen antwortet.",
        summary=("Bisher sind beide {} durchgegangen.", "Geklärt: {}", "Als Nächstes folgt der Rest der Liste."),
        summarise="Schreib auf, was oben gesagt wurde, damit jemand anderes weitermachen kann: Ziel, Geklärtes, "
        "Erledigtes, Offenes. Behalte Namen und Zahlen. Antworte nur mit dem Text. ",
        by_hand="Fasse unser Gespräch bitte kurz zusammen.",
        preamble="Was vorher geschah:",
        title="Erzeuge einen kurzen Titel für diesen Chat.",
        ideas="Schlage drei Anschlussfragen vor.",
        greeting="Hallo, fangen wir an?",
        go_on="Weiter.",
        nods=("Weiter.", "ok", "Ja, mach das.", "passt"),
    ),
    "ja": Language(
        things=("合言葉", "開店時刻", "色合い", "担当者", "届け先", "予算額", "搭乗口"),
        values=("琥珀", "真鍮", "すみれ", "くるみ", "御影石", "サフラン", "白銅", "群青"),
        told=("{s}の{t}は{v}です。", "{s}については、{t}は{v}になりました。"),
        asked=("{s}の{t}は何ですか?", "{s}の{t}を報告書に書いてください。"),
        fillers=(
            "リストの次の項目に進みましょう。", "今朝もう一度確認しましたが、問題なさそうです。",
            "あとで使うので覚えておいてください。", "今のところはこれで十分です。",
            "昼休みのあとでまた話しましょう。", "別のチームも計画に賛成しています。",
            "今日はほかのところは変えたくありません。", "思ったより少し時間がかかりました。",
        ),
        system="あなたは小さな商社の帳簿を管理する辛抱強いアシスタントで、質問にはきちんとした文で答えます。",
        summary=("これまでに{}について話し合いました。", "決まったこと:{}", "次はリストの残りを進めます。"),
        summarise="上で話した内容を書き出して、ほかの人が続きをできるようにしてください。目的、決まったこと、"
        "終わったこと、残っていること。名前と数字は残し、本文だけを答えてください。",
        by_hand="これまでの会話をまとめてください。",
        preamble="これまでの会話:",
        title="この会話の短いタイトルを作ってください。",
        ideas="次に聞きそうな質問を三つ挙げてください。",
        greeting="こんにちは、始めましょうか。",
        go_on="続けて。",
        nods=("続けて。", "ok", "はい、お願いします。", "次へ"),
        space="",
    ),
    "ru": Language(
        things=("пароль", "время открытия", "цвет", "контактное лицо", "адрес доставки", "бюджет", "выход на посадку"),
        values=("янтарь", "медь", "фиалка", "орех", "гранит", "шафран", "олово", "кобальт"),
        told=("{t} для {s}: {v}.", "Для {s} записано: {t} — {v}."),
        asked=("Какое значение имеет {t} для {s}?", "Впиши в отчёт: {t} для {s}."),
        fillers=(
            "Давай перейдём к следующему пункту списка.", "Сегодня утром я посмотрел ещё раз, всё выглядит нормально.",
            "Пожалуйста, запомни это на потом.", "Пока этого достаточно, спасибо.",
            "После обеда вернёмся к этому вопросу.", "Другая команда согласна с планом.",
            "Сегодня я больше ничего не хочу менять.", "Это заняло немного больше времени, чем ожидалось.",
        ),
        system="Ты терпеливый помощник, который ведёт книги торгового дома и отвечает полными предложениями.",
        summary=("До сих пор были рассмотрены {}.", "Решено: {}", "Дальше идёт остальная часть списка."),
        summarise="Запиши сказанное выше, чтобы кто-то другой мог продолжить работу: цель, решённое, сделанное, "
        "открытое. Сохрани имена и числа. Ответь только текстом. ",
        by_hand="Подведи итог нашего разговора.",
        preamble="Ранее в этом разговоре:",
        title="Придумай короткий заголовок для этого чата.",
        ideas="Предложи три вопроса, которые можно задать дальше.",
        greeting="Привет, начнём?",
        go_on="Дальше.",
        nods=("Дальше.", "ок", "Да, давай.", "продолжай"),
    ),
}  # fmt: skip
_SYLLABLES = ("tar", "vik", "mel", "do", "ran", "ku", "sel", "bor", "lin", "ga", "fe", "nor", "pas", "ti", "wen", "zo")
_SIGNS = "松竹梅蘭菊雲山河湖海石泉林原谷川島橋門塔"


@dataclass(frozen=True, slots=True)
class Fact:
    """A detail that is said once, and that a summary may lack."""

    language: str
    thing: str
    subject: str
    value: str
    form: int

    @property
    def said(self) -> str:
        return self._fill(LANGUAGES[self.language].told[self.form])

    @property
    def retold(self) -> str:
        return self._fill(LANGUAGES[self.language].told[1 - self.form])

    @property
    def asked(self) -> str:
        return self._fill(LANGUAGES[self.language].asked[len(self.value) % 2])

    def _fill(self, pattern: str) -> str:
        return pattern.format(t=self.thing, s=self.subject, v=self.value)


class Talk:
    """Endless details and fillers. taken: subjects and values that were used up by others"""

    def __init__(self, rng: random.Random, language: str, taken: set[str]) -> None:
        self.words, self._rng, self._language, self._taken = LANGUAGES[language], rng, language, taken

    def fact(self) -> Fact:
        draw, words = self._rng, self.words

        def subject() -> str:
            if words.space:
                return "".join(draw.choice(_SYLLABLES) for _ in range(3)).capitalize()
            return "".join(draw.choice(_SIGNS) for _ in range(2)) + draw.choice("店屋館")

        def value() -> str:
            if draw.random() < 0.6:
                return f"{draw.choice(words.values)} {draw.randint(100, 99_999)}"
            return "-".join([*draw.choices(words.values, k=2), "".join(draw.choices(_SYLLABLES, k=2))])

        thing = draw.choice(words.things)
        return Fact(self._language, thing, self._unused(subject), self._unused(value), draw.randrange(2))

    def _unused(self, make: Callable[[], str]) -> str:
        while (text := make()) in self._taken:
            pass
        self._taken.add(text)
        return text

    def filler(self, count: int) -> str:
        return self.words.space.join(self._rng.sample(self.words.fillers, min(count, len(self.words.fillers))))

    def message(self, fact: Fact, chars: int = 0) -> str:
        """A detail between fillers, `chars` long at least."""
        around = [self.filler(self._rng.randint(0, 2)) for _ in range(2)]
        text = " ".join(part for part in (around[0], fact.said, around[1]) if part)
        while len(text) < chars:
            text += "\n" + self.filler(6)
        return text

    def result(self, fact: Fact) -> str:
        """A table with a detail somewhere in it, as a tool may give."""
        draw = self._rng
        rows = [f"{n:03d} {draw.choice(self.words.fillers)} {draw.randint(10, 99)}" for n in range(draw.randint(6, 30))]
        rows.insert(draw.randrange(1, len(rows)), fact.said)
        return "\n".join(rows)

    def summary(self, facts: Iterable[Fact], language: str, kept: float = 0.3) -> str:
        """What a model makes of the conversation: every subject is named, a third of the details is kept."""
        latest = list(facts)[-40:]
        topics = ", ".join(fact.subject for fact in latest)
        settled = " ".join(fact.retold for fact in latest if self._rng.random() < kept)
        about, found, ahead = LANGUAGES[language].summary
        return "\n".join([about.format(topics), *([found.format(settled)] if settled else []), ahead])
