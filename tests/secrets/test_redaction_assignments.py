"""What a name that says secret is assigned, in every spelling; what only looks like it stays."""

# Secrets are put together here, so that no scanner takes this file for a leak.

import random
import re
import string
from itertools import product

import pytest
from hypothesis import given, strategies as st

from agentops_memory.secrets.redaction import Redacted, redacted

from ..support.samples import examples, for_each
from .test_redaction_rules import FALSE_FRIENDS, UUID, hexed, mixed, plain

EXAMPLES = examples(300)

STRONG = "S3cr3t" + "P@ss!"
WEAK = "correct" + "horse"
FORMS = {
    "strong": STRONG, "of letters and digits": "hunter" + "22x",
    "with a comma": "Sommer" + ",2024!", "with brackets": "9a(b1]" + "c}d<e>f",
    "of other letters": "pässw" + "örd12", "with equal signs": "a=b1" + "=c/d==",
    "in base64": plain(STRONG), "with a dollar sign": "pa$" + "w0rd!x",
    "with a dot": "V3lvet" + ".Harbor9", "with a hash": "Quartz" + "#Lagoon8",
    "with an underscore": "Quartz" + "_Lagoon8", "with a colon": "Quartz" + ":Lagoon8",
    "with a slash": "Quartz" + "/Lagoon8", "with a pipe": "Quartz" + "|Lagoon8",
    "with an ampersand": "Quartz" + "&Lagoon8", "with a closed bracket": "Quartz" + "(Lagoon)8",
    "with an index": "Quartz" + "[Lagoon]8", "with braces": "Quartz" + "{Lagoon}8",
    "of dotted words": "quartz" + ".lagoon.8", "of dotted words in capitals": "QUARTZ" + ".LAGOON8",
    "of words with a hash": "quartz" + "#lagoon",
    "of words with an exclamation mark": "Quartz" + "!Lagoon",
}  # fmt: skip
NAMES = [
    "DB_PASSWORD", "POSTGRES_PASSWORD", "PGPASSWORD", "password", "db-password", "dbPassword",
    "passwd", "SMTP_PASS", "DB_PWD", "client_secret", "clientSecret", "CLIENT_SECRET",
    "SECRET_KEY", "secret_key_base", "passphrase", "spring.datasource.password", "DB_PASSWORD_2",
]  # fmt: skip

# How a name and its value are written down; {n} and {v} stand for them.
QUOTED = {
    "env in quotes": '{n}="{v}"', "env in apostrophes": "export {n}='{v}'",
    "YAML in quotes": '{n}: "{v}"', "a constant of PHP": "define('{n}', '{v}');",
    "a list of arguments": '["app", "--{n}", "{v}"]',
    "a list of Kubernetes": '- name: {n}\n  value: "{v}"', "JSON": '{{"{n}": "{v}", "a": 1}}',
    "JSON in JSON": r'"{{\"{n}\": \"{v}\", \"a\": 1}}"',
    "JSON of pairs": '{{"name": "{n}", "value": "{v}"}}',
    "XML of pairs": '<add key="{n}" value="{v}"/>', "HCL": '  {n}   = "{v}"', "TOML": "{n} = '{v}'",
    "Python": '{n} = "{v}"', "a type": '{n}: str = "{v}"', "bytes": "{n} = b'{v}'",
    "a keyword argument": 'connect(user="app", {n}="{v}", port=1)',
    "JavaScript": "const {n} = '{v}';", "a property of an object": "{{ user: 'ada', {n}: '{v}' }}",
    "PHP": "'{n}' => '{v}',", "PowerShell": '$env:{n} = "{v}"',
    "a default of Python": 'os.environ.get("{n}", "{v}")',
    "a default of JavaScript": "process.env.{n} || '{v}'",
    "an option in quotes": "app --{n} '{v}' x",
    "docker with quotes": 'docker run -e {n}="{v}" image', "a comment": '# {n} = "{v}"',
}  # fmt: skip
BARE = {
    "env": "{n}={v}", "export": "export {n}={v}", "set": "set {n}={v}",
    "a comment after it": "{n}={v} # of staging", "before a command": "{n}={v} psql -h db",
    "docker -e": "docker run -e {n}={v} -p 80:80 image",
    "docker --env": "docker run --env {n}={v} image", "Dockerfile": "ENV {n} {v}",
    "YAML": "  {n}: {v}", "YAML with a comment": "{n}: {v} # of staging",
    "a block of YAML": "{n}: |\n  {v}", "a list of Compose": "  - {n}={v}",
    "a list of Kubernetes, bare": "- name: {n}\n  value: {v}", "properties": "{n} = {v}",
    "an option": "app --{n} {v} x", "an option with a sign": "app --{n}={v} x",
    "an added line": "+{n}={v}", "a quoted line": "> {n}: {v}", "XML": "<{n}>{v}</{n}>",
}  # fmt: skip
INLINE = {
    "a list of pairs": "{n}={v}, user=bob", "a query": "https://example.com/x?{n}={v}&x=1",
    "prose": "Use {n}={v} there.", "Markdown": "`{n}={v}`", "bold": "- **{n}:** `{v}`",
    "a table": "| {n} | {v} |", "a default of the shell": "X=${{{n}:-{v}}}",
    "a sentence": "Log in as ada, {n}: {v}", "a setter": 'user.set_{n}("{v}")',
}  # fmt: skip
SPELLINGS = QUOTED | BARE | INLINE


def written(spelling: str, name: str, value: str) -> str:
    return SPELLINGS[spelling].format(n=name, v=value)


@for_each("spelling", SPELLINGS)
def test_what_a_password_is_assigned_is_taken_out_in_each_spelling(spelling: str) -> None:
    for name in NAMES:
        in_address = spelling == "a query" and name == "password"
        kind = "connection-password" if in_address else "password"

        assert redacted(written(spelling, name, STRONG)) == Redacted(
            text=written(spelling, name, f"[REDACTED:{kind}]"), count=1, kinds={kind: 1}
        )


@for_each("spelling", [*QUOTED, *BARE])
def test_a_password_of_any_signs_is_taken_out_whole(spelling: str) -> None:
    # In XML a `<` would be an entity.
    for form in (it for it in FORMS.values() if spelling != "XML" or "<" not in it):
        text = redacted(written(spelling, "DB_PASSWORD", form)).text

        assert text == written(spelling, "DB_PASSWORD", "[REDACTED:password]")


@for_each("spelling", ["env", "export", "docker -e", "YAML", "env in quotes"])
def test_beside_a_name_in_capitals_a_word_is_enough(spelling: str) -> None:
    for word in (WEAK, "correct" + ".horse"):
        assert word not in redacted(written(spelling, "POSTGRES_PASSWORD", word)).text


LIKE_NAMES = ["V3lvet" + ".Harbor9", "Quartz" + "#Lagoon8", "Quartz" + ".Lagoon8"]
IN_LINES = [*QUOTED, "env", "export", "set", "a comment after it", "docker -e", "YAML",
            "YAML with a comment", "a list of Compose", "an option", "an option with a sign",
            "a quoted line", "an added line", "XML", "a query", "prose"]  # fmt: skip
IN_CONNECTIONS = [
    "postgres://app:{v}@db:5432/app", "Server=db;User Id=sa;Password={v};Encrypt=yes",
    "host=db user=app password={v} dbname=app", "jdbc:postgresql://db/app?user=app&password={v}",
    "mysql -u app -p'{v}' app", "The password is in DB_PASSWORD={v}.", "password={v}\n",
]  # fmt: skip


def assert_taken_out(text: str, value: str) -> None:
    """Of the text, in which {v} stands for the value, that goes alone, as a secret of any kind."""
    left = redacted(text.replace("{v}", value)).text

    assert re.sub(r"\[REDACTED:[a-z-]+\]", "{v}", left) == text


@for_each("text", IN_CONNECTIONS)
def test_a_password_with_a_dot_is_taken_out_of_connections_and_sentences(text: str) -> None:
    assert_taken_out(text, LIKE_NAMES[0])


@pytest.mark.slow
@for_each("spelling", IN_LINES)
def test_a_dot_or_a_hash_is_no_sign_of_code_in_quotes_or_in_a_line_of_its_own(
    spelling: str,
) -> None:
    for name, value in product(NAMES, LIKE_NAMES):
        assert_taken_out(written(spelling, name, "{v}"), value)


# labels, and values that look made by chance
CHANCE = {
    "API_KEY": mixed(32), "apiKey": hexed(32), "ENCRYPTION_KEY": mixed(43) + "=",
    "PrivateKey": mixed(43) + "=", "PresharedKey": mixed(43) + "=", "signing_key": hexed(64),
    "MAILGUN_API_KEY": "key-" + hexed(32), "MAILGUN_KEY": "key-" + mixed(32).lower(),
    "SECRET_KEY": "django-" + "insecure-" + mixed(24).lower(),
    "MAILCHIMP_API_KEY": hexed(32) + "-us12", "PLAID_ACCESS_TOKEN": "access-production-" + UUID,
    "SLACK_SIGNING_SECRET": hexed(32), "webhook_token": mixed(24), "accessToken": mixed(40),
}  # fmt: skip
NO_INLINE = ["a default of JavaScript", "Dockerfile", "a table", "a setter", "a block of YAML",
             "a default of the shell"]  # fmt: skip


@for_each("spelling", [name for name in SPELLINGS if name not in NO_INLINE])
def test_random_characters_are_taken_out_in_each_spelling(spelling: str) -> None:
    for label, value in CHANCE.items():
        assert_taken_out(written(spelling, label, "{v}"), value)


ALPHABETS = {
    "base62": string.ascii_letters + string.digits,
    "base64url": string.ascii_letters + string.digits + "-_",
    "hexadecimal": string.digits + "abcdef",
    "base32": string.ascii_uppercase + "234567",
    "capitals and digits": string.ascii_uppercase + string.digits,
    "lower case and digits": string.ascii_lowercase + string.digits,
}
LABELS = ["GITHUB_TOKEN={v}", "export API_KEY={v}", "api_key: {v}", '"access_token": "{v}"']
TRIES = 250
MOST_LEFT = 2  # of so many; such as `lapitoner7esaboh`, which might be words


def is_mixed(token: str) -> bool:
    """Whether it has both cases, or letters and digits."""
    return token not in (token.lower(), token.upper()) or (
        not token.isalpha() and re.search("[A-Za-z]", token) is not None
    )


@pytest.mark.slow
@for_each("length", [16, 24, 40])
@for_each("alphabet", ALPHABETS)
def test_a_token_of_sixteen_characters_is_taken_out_beside_its_label(
    alphabet: str, length: int
) -> None:
    chance = random.Random(f"{alphabet} {length}")  # noqa: S311 - the same tokens each time
    tokens = ["".join(chance.choices(ALPHABETS[alphabet], k=length)) for _ in range(TRIES)]
    mixed = [token for token in tokens if is_mixed(token)]

    left = [
        token
        for number, token in enumerate(mixed)
        if token in redacted(LABELS[number % len(LABELS)].format(v=token)).text
    ]

    assert len(mixed) > TRIES * 0.9
    assert len(left) <= MOST_LEFT, left


FINGERPRINT = "A035C8C19219BA821ECEA86B64E628F8D684696D"
PUBLIC = "AAAAC3NzaC1lZDI1NTE5AAAAI" + mixed(43)
HARMLESS = [
    "'password' => 'required|string|min:8|confirmed',",
    '"forgot_password": "Forgot your password?",',
    "PUBLIC_KEY=q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1Gf5Ds0Paq7Rw2Zk9Lm4=",
    "NEXT_PUBLIC_KEY=q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1Gf5Ds0Pa", "DB_PASSWORD=/run/secrets/db_password1",
    "TLS_SECRET=my-app-tls-2", "password: $2b$12$q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1G",
    'password = "pbkdf2_sha256$260000$q7Rw2Zk9$Lm4Xc8Vb"',
    "secret: arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbC123", "password: argon2id",
    "bypass=enabled2x", "PWD=/home/ada/project1", "OLDPWD=/home/ada/x12",
    "db_password = variable\npassword2 = value3",
    'DB_PASSWORD: "The password of the database, 8+ characters"', "mysql -u root -ppassword app",
    '"keyPassword": "@Microsoft.KeyVault(SecretUri=https://x.vault.azure.net/secrets/a1)"',
    "password: props.password2!,", "wrong password: user@example.com",
    "reset password: https://example.com/reset/ab12cd34ef56", "PASSWORD: Joi.string().min(8)",
    '"password1", "password2"', "key: 7f3a9c0b5d2e81f64ac77f3a9c0b5d2e81f6",
    "cache-key: linux-node-7f3a9c0b5d2e81f64ac77f3a9c0b5d2e81f64ac7",
    '"key": "q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1G"', "react key=q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1G",
    'url = "x?user=" + u + "&password=" + encodeURIComponent(pw2) + "&x"',
    '"&password="+encodeURIComponent(pw2)+"&x=1"', "DB_PASSWORD=强随机业务库密码",
    "PASS: TestLogin2FA",
    "| Pass | 99.1234% |", 'pass: "test_login_with_2fa"',
    "az login then run docker compose -p myproject up", "redis-cli -a option is insecure",
    f"ENV GPG_KEY={FINGERPRINT}", f"signingkey = {FINGERPRINT}",
    f"gpg --recv-key {FINGERPRINT.lower()}", f"apt-key: {FINGERPRINT}", f"deploy_key={PUBLIC}",
    f"authorized_key: {PUBLIC}", '"password": "Passwort*"', "imagePullSecret=regcred-prod",
    "TLS_SECRET=my-app-tls", "secret=my-app-tls", "password: SHA-256/bcrypt",
    "password := os.Getenv(name2)", "password = namespace.Class2",
    "create_user(\n    name=form.name,\n    password=form.field2\n)",
    "<LoginForm\n  password=model.value\n/>", "useForm({\n  password: state.form.field1\n})",
    "security.password=org.springframework.Bcrypt2", "password=$user->field2",
    "DB_PASSWORD: process.env.DB_PASS1", "RESET_PASSWORD: 'auth.reset.title'",
    "app.config.update(SECRET_KEY=base.key_2, DEBUG=True)", "KEYSTORE_SECRET=keystore.jks",
    "SECRET=kv/data/app2", "password: kv/data/app2#password",
    "| `redis.password` | Redis&reg; password | none |", "private_key: PKCS12PrivateKeyTypes",
    "API_KEY=YourApiKeyGoesHere123", "PUBLIC_KEY=q7Rw2Zk9Lm4Xc8Vb",
    "Culture=neutral, PublicKeyToken=b77a5c561934e089",
]  # fmt: skip


STAND_INS = [
    "changeme", "your-password-here", "my_secret_key", "password123", "SuperSecret!", "x" * 9,
]  # fmt: skip
STOOD_IN = [
    SPELLINGS[spelling].format(n="DB_PASSWORD", v=value)
    for value in STAND_INS
    for spelling in ("env", "env in quotes", "YAML", "JSON", "an option")
]
BESIDE_A_PLACEHOLDER = 'DB_PASSWORD="1a[REDACTED:jwt]2b"'  # what is left is judged alone


@for_each("text", [*FALSE_FRIENDS.values(), *HARMLESS, *STOOD_IN, BESIDE_A_PLACEHOLDER])
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redacted(text) == Redacted(text=text)


def test_a_password_has_8_to_256_characters() -> None:
    assert redacted("DB_PASSWORD=h4nt3r!").count == 0
    assert redacted("DB_PASSWORD=h4nt3r!x").count == 1

    longest = (STRONG * 24)[:256]

    assert redacted(f"DB_PASSWORD={longest}").count == 1
    assert redacted(f"DB_PASSWORD={longest}x").count == 0


newlines = st.sampled_from(["\n", "\r\n", "\r"])
indents = st.sampled_from(["", "  ", "\t", "    - ", "> ", "+ ", "# "])
others = st.lists(
    st.one_of(
        st.sampled_from([text for text in HARMLESS if "\n" not in text]),
        st.sampled_from([text for text in FALSE_FRIENDS.values() if len(text) < 300]),
        st.text(st.characters(exclude_characters="<>\r\n", exclude_categories=["Cs"]), max_size=30),
    ),
    max_size=3,
)


def placed(lines: list[str], indent: str, newline: str) -> str:
    return newline.join(indent + line for text in lines for line in text.split("\n"))


@pytest.mark.slow
@EXAMPLES
@given(st.sampled_from(list(SPELLINGS)), st.sampled_from(NAMES), others, others, indents, newlines)
def test_no_surroundings_let_an_assigned_password_through(
    spelling: str, name: str, before: list[str], after: list[str], indent: str, newline: str
) -> None:
    text = placed([*before, written(spelling, name, STRONG), *after], indent, newline)

    once = redacted(text).text

    assert STRONG not in once
    assert redacted(once) == Redacted(text=once)


@EXAMPLES
@given(st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=4), indents, newlines)
def test_no_surroundings_make_what_is_harmless_a_secret(
    texts: list[str], indent: str, newline: str
) -> None:
    text = placed(texts, indent, newline)

    assert redacted(text) == Redacted(text=text)
