"""Rules of a user in other languages than English, and what only sounds like one."""

# ruff: noqa: RUF001 - letters of other scripts are meant

import pytest

from lantern_proxy.analyze.standing import is_rule, may_be_instruction

RULES = """
Antworte immer auf Deutsch und ohne Aufzählungen.
Fass niemals die Tabelle der Rechnungen an.
Bitte nie direkt auf main pushen.
Nutze Pnpm statt Npm.
Ab jetzt bitte jede Änderung mit einem Test.
Ändere die Migrationen bitte nicht.
Réponds toujours en français et sans listes.
Ne touche jamais à la table des factures.
N'utilise pas de listes.
Utilise Pnpm au lieu de Npm.
À partir de maintenant, chaque changement vient avec un test.
Responde siempre en español y sin listas.
No toques nunca la tabla de facturas.
Usa Pnpm en vez de Npm.
A partir de ahora, cada cambio lleva una prueba.
Responda sempre em português.
Não mexa na tabela de faturas.
Use Pnpm em vez de Npm.
Rispondi sempre in italiano.
Non toccare mai la tabella delle fatture.
Usa Pnpm invece di Npm.
Antwoord altijd in het Nederlands.
Gebruik Pnpm in plaats van Npm.
Zawsze odpowiadaj po polsku i bez list.
Nigdy nie ruszaj tabeli faktur.
Używaj Pnpm zamiast Npm.
Всегда отвечай по-русски и без списков.
Никогда не трогай таблицу счетов.
Используй Pnpm вместо Npm.
С этого момента к каждому изменению прикладывай тест.
Завжди відповідай українською і без списків.
Використовуй Pnpm замість Npm.
Відтепер до кожної зміни додавай тест.
Her zaman Türkçe ve listesiz cevap ver.
Npm yerine Pnpm kullan.
Bundan sonra her değişikliğe bir test ekle.
Να απαντάς πάντα στα ελληνικά και χωρίς λίστες.
Μην αγγίζεις ποτέ τον πίνακα τιμολογίων.
Από εδώ και πέρα κάθε αλλαγή θέλει μια δοκιμή.
أجب دائما بالعربية وبدون قوائم.
لا تلمس أبدا جدول الفواتير.
استخدم Pnpm بدلا من Npm.
תמיד תענה בעברית.
हमेशा हिंदी में और बिना सूची के उत्तर दो।
चालान की तालिका को कभी मत छुओ।
Npm की जगह Pnpm का उपयोग करो।
请始终用中文回答。
绝不修改发票表。
使用Pnpm而不是Npm。
必ず日本語で答えてください。
請求書の表には触らないでください。
항상 한국어로 대답해 주세요.
""".strip().splitlines()
TOLD = """
Peter kommt immer zu spät.
Ich habe immer Hunger am Abend.
Das war nie ein Problem für uns.
Es ist immer noch kaputt.
Ich habe das nicht gesehen.
Statt des Zuges kam ein Bus.
C'est toujours la même chose.
Il ne vient jamais.
Je n'ai pas vu la page.
María siempre llega tarde.
Siempre me gustó el mar.
No tengo tiempo hoy.
Mio fratello arriva sempre tardi.
Het is altijd druk op kantoor.
Brat zawsze się spóźnia.
Сестра всегда опаздывает.
Я никогда там не был.
Мы говорили про сервер вместо кухни.
我总是迟到。
Toplantı yerine yürüyüşe çıktık.
Mailing lists pass no tests here, no one uses them.
Mai 2024 was warm. Nice, not bad at all, and the e pass works.
The statt of the art, in English.
""".strip().splitlines()


@pytest.mark.parametrize("text", RULES)
def test_orders_for_all_that_follows_are_rules(text):
    assert is_rule(text)
    assert may_be_instruction(f"Gut. {text} Danke!")


@pytest.mark.parametrize("text", TOLD)
def test_what_is_only_told_is_no_rule(text):
    assert not is_rule(text)
