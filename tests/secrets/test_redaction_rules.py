"""What redaction takes out of a text, and what it leaves alone."""

# Secrets are put together here, so that no scanner takes this file for a leak.

import base64
import re
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from agentops_memory.errors import Invalid, OverQuota
from agentops_memory.memory.access import DEFAULT_TENANT, OPERATOR, tenant_id
from agentops_memory.memory.redactor import MOST_RUNS, MOST_VALUES, Redaction
from agentops_memory.secrets import redaction, shapes
from agentops_memory.secrets.redaction import (
    LONGEST_VALUE,
    Redacted,
    Rules,
    redacted,
)

from ..support.samples import examples, for_each, sampled

EXAMPLES = examples(150)
PLACEHOLDER = re.compile(r"\[REDACTED:[A-Za-z0-9._-]{1,64}\]")


def mixed(length: int) -> str:
    """Letters of both cases and digits, as in tokens."""
    return ("q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1Gf5Ds0Pa" * (length // 32 + 1))[:length]


def upper(length: int) -> str:
    return ("Q7RW2ZK4LM5XC3VB6NT" * (length // 19 + 1))[:length]


def hexed(length: int) -> str:
    return ("7f3a9c0b5d2e81f64ac7" * (length // 20 + 1))[:length]


def encoded(text: str) -> str:
    """The text in base64url without padding, as in tokens."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def plain(text: str) -> str:
    """The text in base64, with its padding."""
    return base64.b64encode(text.encode()).decode()


def armored(label: str, lines: list[str], newline: str = "\n") -> str:
    dashes = "-" * 5
    return newline.join([f"{dashes}BEGIN {label}{dashes}", *lines, f"{dashes}END {label}{dashes}"])


HEADER = encoded('{"alg":"HS256"}')
CLAIMS = encoded('{"sub":"ada","admin":true}')
KEY_LINES = [mixed(64)] * 3 + [mixed(20) + "=="]
LABELLED_KEY = mixed(11) + "/" + mixed(28)
UUID = "8a1b2c3d-1111-4222-8333-aabbccddeeff"

# kind -> (what stands before, the secret, what stands after)
SAMPLES: dict[str, list[tuple[str, str, str]]] = {
    "private": [
        ("", "<private>the door code is 4711</private>", ""),
        ("", "<PRIVATE >\nall\nof it\n</ private>", ""),
    ],
    "age-key": [("", "AGE-SECRET-" + "KEY-1" + upper(58), "")],
    "anthropic-key": [
        ("", "sk-" + "ant-api03-" + mixed(40) + "-_" + mixed(51) + "AA", ""),
        ("", "sk-" + "ant-admin01-" + mixed(93), ""),
    ],
    "authorization": [
        ("Authorization: Bearer ", mixed(24), ""),
        ("authorization:  basic ", "dXNl" + "cjpwYXNz" + "==", ""),
        ("authorization=Bearer%20", mixed(24), "&x=1"),
        ('{"auths":{"r.example":{"auth":"', plain("ada:correct-horse"), '"}}}'),
        (r'"{\"auth\": \"', plain("ada:correct-horse"), r'\"}"'),
        ("//r.example/:_auth=", plain("ada:hunter2!"), ""), ("Authorization: GenieKey ", UUID, ""),
        ("Authorization: ", mixed(32), ""),
    ],
    "aws-key-id": [("", prefix + upper(16), "") for prefix in ("AKIA", "ASIA", "ABIA", "ACCA")],
    "aws-secret-key": [
        ("aws_secret_access_key = ", LABELLED_KEY, ""), ('"SecretAccessKey": "', LABELLED_KEY, '"'),
        ("<SecretAccessKey>", LABELLED_KEY, "</SecretAccessKey>"),
        ("aws configure set aws_secret_access_key ", LABELLED_KEY, ""),
        ("AWS Secret Access Key [None]: ", LABELLED_KEY, ""),
        ("| AWS_SECRET_ACCESS_KEY | ", LABELLED_KEY, " |"),
        ("| `secret access key` | `", LABELLED_KEY, "` |"),
        ("aws_session_token = ", mixed(120) + "/+" + mixed(40) + "==", ""),
    ],
    "azure-key": [
        ("AccountName=x;AccountKey=", mixed(40) + "+/" + mixed(44) + "==", ";Endpoint=y"),
        ("SharedAccessKeyName=Root;SharedAccessKey=", mixed(43) + "=", ""),
        ("https://x.blob.core.windows.net/c?sv=2024&sig=", mixed(43) + "%3D", "&se=1"),
        ("abc8Q~", mixed(20) + "_-" + mixed(12), ""),
        ("", mixed(52) + "JQQJ99" + mixed(18) + "AZDO" + mixed(4), ""),
    ],
    "connection-password": [
        ("postgres://user:", "hunter2", "@host/db"), ("redis://:", "s3cret", "@10.0.0.1:6379/0"),
        ("Password=", "hunter2", ";Server=db"), ("Driver=x; Pwd=", "{hunter;2}", ";"),
        ("jdbc:postgresql://host/db?user=ada&password=", "hunter2", "&ssl=true"),
        ("Server=h; Password = ", "hunter2", "; Database = x"),
        ("Server=h;Password=", "hun(ter2", ";"), ("postgres://u:", "密码abc", "@h"),
        ("postgresql+asyncpg://app:", "Xk9/Tq2+Lm4=", "@db.internal:5432/app"),
        ("mongodb+srv://app:", "a/b/c", "@h1,h2/?x=y"),
        ("host=h user=app password=", "hunter2", " dbname=x"),
        ('curl -u "bob:', "Sup3r S3cret" + " pw", '" https://x.example'),
        ("host=h dbname=x password=", "hunter2", " "), ("password=", "'correct horse'", " host=h"),
        ("curl -sS -u ada:", "hunter2", " https://example.com"),
        ("curl https://example.com?a=1&b=2 --user 'ada:", "Hunter-2", "'"),
        ("curl -s \\\n  -u ada:", "hunter2", " x"),
        ("machine api.example.com login ada password ", "correct-horse", " account x"),
        ("machine api.example.com\n  login ada\n  password ", "hunter2", "\n"),
    ],
    "digitalocean-token": [("", "do" + kind + "_v1_" + hexed(64), "") for kind in "opr"],
    "discord-token": [
        ("", base64.b64encode(b"123456789012345678").decode() + ".Gx1abc." + mixed(38), ""),
        ("", encoded("1234567890123456789") + ".Gx1abc." + mixed(38), ""),
    ],
    "docker-token": [("", "dckr_" + "pat_" + mixed(27), "")],
    "doppler-token": [
        ("", "dp." + "pt." + mixed(43), ""),
        ("", "dp." + "st.dev_main." + mixed(43), ""),
    ],
    "github-token": [
        *(("", "gh" + kind + "_" + mixed(36), "") for kind in "pousr"),
        ("", "github_" + "pat_" + mixed(22) + "_" + mixed(59), ""),
    ],
    "gitlab-token": [
        ("", "gl" + "pat-" + "x-" + mixed(18), ""),
        ("", "gl" + "pat-" + mixed(27) + ".01." + "0a1b2c3d4", ""),
        ("", "gl" + "agent-" + mixed(50), ""),
        ("", "GR13" + "48941" + mixed(20), ""),
    ],
    "google-key": [
        ("", "AIza" + "Sy" + mixed(33), ""), ("", "ya29" + ".a0" + mixed(60), ""),
        ("", "GOCSPX" + "-" + mixed(28), ""), ("", "1/" + "/0" + mixed(30) + "_-" + mixed(30), ""),
        ("", "1/" + "/0" + mixed(60), ""),
    ],
    "huggingface-token": [("", "hf_" + mixed(34), "")],
    "jwt": [
        ("", f"{HEADER}.{CLAIMS}.{mixed(43)}", ""),
        ("session-", f"{HEADER}.{CLAIMS}.{mixed(20)}-_{mixed(21)}", ""),
        ("", f"{HEADER}..{mixed(16)}.{mixed(60)}.{mixed(22)}", ""),
    ],
    "labelled-secret": [
        ("api_key = '", mixed(32), "'"), ("CLIENT_SECRET=", mixed(30) + "+/" + mixed(8), ""),
        ("auth-token: ", "Rd" + "Tkqbn1vXcLm" + "Hu2pYwaEsF", ""),
        ("refresh_token => '", hexed(40), "'"), ("API key: `", mixed(24), "`"),
        ("Set API_KEY=", mixed(24), "."), ("API_KEY=", mixed(24), ": it works"),
        ("It is API_KEY=", mixed(24), "!"), ("**API Key:** ", mixed(24), ""),
        ("run --api-key ", mixed(24), " x"),
    ],
    "memory-key": [("", "amk_" + "ab12cd34" + "_" + mixed(41) + "-_", "")],
    "npm-token": [
        ("", "npm_" + mixed(36), ""),
        ("//registry.npmjs.org/:_authToken=", UUID, ""),
        ("//registry.example/:_authToken=", "correct-horse-2", ""),
    ],
    "openai-key": [
        ("", "sk-" + mixed(48), ""),
        ("", "sk-" + "proj-" + mixed(40) + "_-" + mixed(80), ""),
        ("", "sk-" + "or-v1-" + hexed(64), ""),
    ],
    "password": [
        ("DB_PASSWORD=", "S3cr3t" + "P@ss!", ""), ('password = "', "S3cr3t" + "P@ss!", '"'),
        ("  password: '", plain("S3cr3t" + "P@ss!"), "'"),
        ("mysql -u root -p", "S3cr3t" + "P@ss!", " app"),
        ("mysqldump -h db \\\n  -p'", "S3cr3t" + "P@ss!", "' app"),
        ("mariadb -uroot -p", "correct" + "horse", " app"),
        ("sshpass -p ", "S3cr3t" + "P@ss!", " ssh ada@host"),
        ("redis-cli -h db -a ", "S3cr3t" + "P@ss!", " ping"),
        ("redis-server --requirepass ", "S3cr3t" + "P@ss!", " x"),
        ("docker login -u ada -p ", "S3cr3t" + "P@ss!", " r.example"),
        ("mongosh -u ada -p ", "S3cr3t" + "P@ss!", " x"),
        ("ALTER USER app WITH PASSWORD '", "S3cr3t" + "P@ss!", "'"),
        ("CREATE USER 'a'@'%' IDENTIFIED BY '", "S3cr3t" + "P@ss!", "'"),
        ('$password = ConvertTo-SecureString "', "S3cr3t" + "P@ss!", '" -AsPlainText'),
        ("mysqldump app \\\n -uroot -p", "S3cr3t" + "P@ss!", " -v"),
        ("mysql.exe -p", "S3cr3t" + "P@ss!", " app"),
        ('mysql -u "my app" -p"', "Sup3r S3cret" + " pw", '" app'),
        ("sshpass -p '", "Sup3r S3cret" + " pw", "' ssh h"),
        (r'{"run": "sshpass -p \"', "Sup3r S3cret" + " pw", r'\" ssh h"}'),
        ('redis-cli -a "', "Sup3r S3cret" + " pw", '" ping'),
        ('docker login -p "', "Sup3r S3cret" + " pw", '" r.example'),
        ("user=admin pass=", "hunter" + "22", " "),
        ("POSTGRES_PASSWORD=", "hunter" + "22", ",POSTGRES_USER=bob"),
        ("{ pass: '", "abcd efgh" + " ijkl mnop", "'"),
    ],
    "private-key": [
        ("", armored("PRIVATE KEY", KEY_LINES), ""),
        ("", armored("RSA PRIVATE KEY", KEY_LINES, "\r\n"), ""),
        ("", armored("OPENSSH PRIVATE KEY", KEY_LINES, "\\n"), ""),
        ("", armored("PGP PRIVATE KEY BLOCK", ["Version: 1", "", *KEY_LINES]), ""),
        ("", armored("EC PRIVATE KEY", ["    " + line for line in KEY_LINES]), ""),
        *(
            ("", plain(armored(label, KEY_LINES)), "")
            for label in (
                *("PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY"),
                *("OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "PGP PRIVATE KEY BLOCK"),
            )
        ),
        ('{"kty":"EC","d":"', mixed(43), '"}'),
        ('{"kty": "oct", "k": "', mixed(43), '"}'),
        ("client-key-data: ", plain(armored("RSA PRIVATE KEY", KEY_LINES) + "\n"), ""),
    ],
    "pypi-token": [("", "pypi-" + "AgEIcHlwaS5vcmc" + mixed(60) + "-_" + mixed(40), "")],
    "sendgrid-key": [("", "SG." + mixed(22) + "." + mixed(43), "")],
    "service-token": [
        ("", "shp" + "at_" + hexed(32), ""), ("", "lin_" + "api_" + mixed(40), ""),
        ("", "ntn_" + mixed(46), ""), ("", "dapi" + hexed(32), ""),
        ("", "glsa_" + mixed(32) + "_" + hexed(8), ""),
        ("", "glc_" + "eyJ" + mixed(50) + "/" + mixed(30), ""), ("", "sntryu_" + hexed(64), ""),
        ("", "sntrys_" + mixed(90) + "_" + mixed(43), ""),
        ("", "PMAK-" + hexed(24) + "-" + hexed(34), ""), ("", "NRAK-" + upper(27), ""),
        ("", "ATATT3" + mixed(180) + "=" + upper(8), ""), ("", "sq0" + "atp-" + mixed(22), ""),
        ("", "xkeysib-" + hexed(64) + "-" + mixed(16), ""),
        ("", "pscale_" + "tkn_" + mixed(43), ""), ("", "pul-" + hexed(40), ""),
        ("", "figd_" + mixed(40), ""), ("", "gsk_" + mixed(52), ""), ("", "xai-" + mixed(80), ""),
        ("", "r8_" + mixed(37), ""), ("", "pplx-" + mixed(48), ""),
        ("", "tskey-" + "auth-" + mixed(17) + "-" + mixed(32), ""), ("", "sbp_" + hexed(40), ""),
        ("", "sb_" + "secret_" + mixed(22) + "_" + mixed(8), ""),
        ("", "HRKU-" + "AA" + mixed(58), ""), ("", "dt0c01." + upper(24) + "." + upper(64), ""),
        ("", "rubygems_" + hexed(48), ""), ("", "lsv2_" + "pt_" + hexed(32) + "_" + hexed(10), ""),
        ("", "ops_" + "eyJ" + mixed(250), ""),
        ("", "ABSK" + plain("Bedrock" + "APIKey-x1")[:20] + "eS" + mixed(90), ""),
        ("", "ATBB" + mixed(32), ""), ("", "ATCTT3" + mixed(170), ""),
        ("", "CFPAT-" + mixed(43), ""), (mixed(14) + ".", "atlasv1." + mixed(64), ""),
        ("", "fm2_" + mixed(150), ""), ("", "nvapi-" + mixed(40) + "_-" + mixed(22), ""),
        ("", "pat" + mixed(14) + "." + hexed(64), ""), ("", "pat-" + "na1-" + UUID, ""),
        ("", "phx_" + mixed(43), ""), ("", "sk-" + "lf-" + UUID, ""),
        ("", "snyk_" + "uat." + mixed(8) + ".eyJ" + mixed(60), ""),
        ("", "tvly-" + "dev-" + mixed(32), ""),
        ("", "sk" + ".eyJ1" + mixed(60) + "." + mixed(22), ""), ("", "vcp" + "_" + mixed(40), ""),
        ("", "EAA" + "G" + mixed(150), ""), ("", "LTAI" + "5t" + mixed(18), ""),
    ],
    "slack-token": [
        ("", "xox" + "b-123456789012-1234567890123-" + mixed(24), ""),
        ("", "xox" + "p-123456789012-123456789012-123456789012-" + hexed(32), ""),
        ("", "xoxe." + "xoxp-1-" + mixed(160), ""),
        ("", "xapp" + "-1-A0123456789-1234567890123-" + hexed(64), ""),
        ("", "xox" + "d-" + mixed(40) + "%2F" + mixed(20), ""),
    ],
    "stripe-key": [
        ("", "sk_" + "live_" + mixed(24), ""), ("", "sk_" + "live_" + mixed(20) + "0" * 11, ""),
        ("", "rk_" + "test_" + mixed(24), ""), ("", "whsec_" + mixed(20) + "+/" + mixed(10), ""),
    ],
    "telegram-token": [("bot12345678:", "AA" + mixed(33), "/getMe")],
    "twilio-key": [("", "SK" + hexed(32), "")],
    "vault-token": [("", "hvs." + mixed(90), ""), ("", "hvb." + mixed(140), "")],
    "webhook": [
        ("https://hooks.slack.com/services/", "T0ABCDEF1/B0ABCDEF2/" + mixed(24), ""),
        ("https://discord.com/api/webhooks/123456789012345678/", mixed(68), ""),
        (
            "https://x.webhook.office.com/webhookb2/",
            f"{hexed(32)}@{hexed(32)}/IncomingWebhook/{hexed(32)}/{hexed(32)}",
            "",
        ),
    ],
}  # fmt: skip
SECRETS = [(kind, secret) for kind, samples in SAMPLES.items() for _, secret, _ in samples]

CONTEXTS = {
    "alone": "{}", "in prose": "It said {} and then stopped.", "on its own line": "first\n{}\nlast",
    "between CRLFs": "first\r\n{}\r\nlast", "in quotes": 'export X="{}"',
    "in apostrophes": "x = '{}'", "in Markdown": "use `{}` here", "in a fence": "```sh\n{}\n```",
    "in JSON": '{{"a": 1, "b": "{}"}}', "after an escaped line end": r'{{"log": "failed\n{}"}}',
    "in YAML": "env:\n  - name: X\n    value: {}\n",
    "in an address": "https://example.com/?t={}&x=1",
    "after a percent escape": "https://example.com/?t%3D{}&x=1",
    "after an escaped sign": r'{{"log": "t\u003d{}"}}', "after a colour": "\x1b[31m{}\x1b[0m",
    "after the end of a colour": "\x1b[0m{}", "between Chinese": "密钥{}请勿泄露",
    "after accents and emoji": "clé é{} 🔑", "in brackets": "({})", "in HTML": "<td>{}</td>",
}  # fmt: skip


@pytest.mark.slow
@for_each("context", CONTEXTS)
@for_each("kind", SAMPLES)
def test_a_secret_is_taken_out_and_nothing_else(kind: str, context: str) -> None:
    around = CONTEXTS[context].format

    for before, secret, after in SAMPLES[kind]:
        assert redacted(around(before + secret + after)) == Redacted(
            text=around(f"{before}[REDACTED:{kind}]{after}"), count=1, kinds={kind: 1}
        )


def test_every_kind_but_registered_values_has_samples() -> None:
    assert sorted([*shapes.KINDS, "private"]) == sorted(SAMPLES)


def test_a_short_text_is_searched_as_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for samples in SAMPLES.values() for sample in samples for text in sample]
    short = [
        text[at : at + redaction.AT_ONCE - 1] for text in texts for at in range(0, len(text), 5)
    ]
    quickly = [list(redaction.secrets(text)) for text in short]
    monkeypatch.setattr(redaction, "AT_ONCE", 0)

    assert [list(redaction.secrets(text)) for text in short] == quickly


NOISE = base64.b64encode(b"".join(sha256(bytes([n])).digest() for n in range(256)) * 4).decode()
DASHES = "-" * 5

FALSE_FRIENDS = {
    "git and SHA hashes": f"commit {hexed(40)} {hexed(64)} {hexed(128)} sha256:{hexed(64)}",
    "UUIDs": "id=550e8400-e29b-41d4-a716-446655440000",
    "a UUID beside a label": "secret: 550e8400-e29b-41d4-a716-446655440000",
    "a short hash beside a label": '"AWS::IAM::AccessKey": "62d91b17309e76c8"',
    "snake case": "test_that_the_access_token_of_a_user_is_refreshed_v2 secret_key_of_run_12",
    "camel case": "getSecretAccessKeyFromEnvironment2 passwordResetTokenGeneratorFactory",
    "kebab case": "sk-learn task-force-of-2024 risk-assessment-report-for-the-board-v2",
    "kebab case with a hash": f"task-{hexed(40)} disk-{mixed(48)} /desk-{hexed(32)}",
    "snake case with a hash": "task_test_" + mixed(24) + " cache_npm_files",
    "an image": f"![x](data:image/png;base64,{NOISE})",
    "plain base64": "\n".join(NOISE[at : at + 76] for at in range(0, 5000, 76)),
    "a public SSH key": f"ssh-rsa AAAAB3NzaC1yc2E{NOISE[:300]} ada@host",
    "a certificate": armored("CERTIFICATE", KEY_LINES),
    "a mention of a private key": f"It begins with {DASHES}BEGIN PRIVATE KEY{DASHES} as they do.",
    "an empty private key": armored("PRIVATE KEY", ["..."]),
    "a short bearer": "Bearer a1b2c3d4e5f6",
    "words in a header": "Authorization: Basic authentication, Authorization: Bearer YOUR_TOKEN",
    "variables in an address": "postgres://user:$PASSWORD@host ${U}:${PW} x://u:${PW}@h x://u:$pw@h",
    "templates in an address": "a://u:{password}@h b://u:{{ pw }}@h c://u:%s@h d://u:%(pw)s@h",
    "blanks in an address": "a://u:***@h b://u:xxxx@h c://<user>:<password>@h d://u:...@h",
    "ports": "http://localhost:8080/a@b http://[::1]:80/x ssh://git@host:22/x git@host:org/x.git",
    "a port, then mail": "http://host:3000, or ada@x.org; http://host:80?mail=ada@x.org",
    "a port before another script": (
        "在http://10.0.0.1:8080。登录名是Ada、邮箱ada@x.org http://h:80…a@x.org"
    ),
    "a port, then mail, of a database": "redis://h:6379;ada@x.org postgres://h:5432/db?a=b@c.org",
    "passwords in one line of code": (
        "let user; password = null; const z=1; password = getElementById('p').value; go(); "
        "if (a; password == other; x); pwd = os.getcwd(); cmd = 1; password = value; x = 2; "
        "password=read(); y=1"
    ),
    "passwords in one line of shell": "x=1;pwd=${PWD}/x;pwd=$(pwd)/y;pwd=$HOME/z; pwd=$OLDPWD; q=1",
    "keyword arguments": "connect(host=h, user=u, password=p, dbname=d) and password=x in prose",
    "a mail address before a protocol": "see {u}:{p}@tcp({h}) or u:${PW}@tcp(h) or a@tcp(b)",
    "curl without a password": (
        'curl -u $USER:$PASS x; curl -u "$U:$P" x; curl -u ada:password x; curl -u ada x; '
        "curl x && docker run -u 1000:1001 y"
    ),
    "words of netrc": (
        "the machine has a login and a password of 12 signs; login me password forgotten; "
        "machine {host} login x password {token}; machine HOST login USER password PASSWORD"
    ),
    "auth that is no pair": f'"auth": "basic", "auth": "{plain("correct horse")}" _auth=required',
    "a name beside AWS": "secret access key "
    + "abcde" * 8
    + " | aws_secret_access_key | required |",
    "tokens that are no secret": (
        f"next_page_token={mixed(32)} nextToken: {mixed(40)} --starting-token {mixed(40)} "
        f"csrf_token: {mixed(32)} name='csrfmiddlewaretoken' csrfmiddlewaretoken={mixed(64)} "
        f"ClientToken: {mixed(40)} X-XSRF-TOKEN: {mixed(32)}"
    ),
    "words beside a token": (
        f"token: Identifier max_tokens=200000 token={UUID} token: authentication_required "
        "eos_token='<|endoftext|>' token := scanner.NextToken2() GITHUB_TOKEN: ${{ secrets.X }}"
    ),
    "beginnings of newer tokens": (
        f"nvapi-key-name tvly-dev sk-lf-{hexed(8)} pat-na1-x phx_ fm2_ ATBB ATCTT3 1//0"
        f" x1//0{mixed(44)} patience.{hexed(64)} a.atlasv1.b phc_{mixed(43)} pk-lf-{UUID} 1Q~2"
    ),
    "an image by its digest": f"docker://alpine:3.18@sha256:{hexed(64)}",
    "expressions in code": "api_key = config.v1.keys2.s3b4 secret=load1Secret2From3Env4(x)",
    "resource names": "secret: projects/p1/secrets/s2/versions/3k4 access_key: k8s/overlays/v1/db2",
    "names beside a label": "password: CorrectHorseBatteryStaple42 access_key=" + "abcde" * 10,
    "other signatures": f"csig={mixed(50)} 1234:AA{mixed(40)} x:AA{mixed(33)}",
    "a password's hash": "password: $2b$12$" + mixed(53),
    "blanked tokens": " ".join(
        ["gh" + "p_" + "x" * 36, "AKIA" + "X" * 16, "sk_" + "live_" + "*" * 24, "hf_" + "x" * 34]
    ),
    "blanked tokens of a longer prefix": " ".join(
        [
            "dt0c01." + "X" * 24 + "." + "X" * 64,
            "sk-" + "ant-api03-" + "x" * 40,
            "do" + "p_v1_" + "0" * 64,
        ]
    ),
    "placeholders of documentation": (
        "xoxb-your-token-here sk-ant-your-anthropic-key-goes-here glpat-your-token"
    ),
    "other tags": "<privateer> <private key> < / private> &lt;private&gt;",
    "placeholders": "[REDACTED] [REDACTED:github-token] x://u:[REDACTED:db.prod]@h [REDACTED:",
    "nothing": "",
}


def test_all_secrets_of_a_text_are_taken_out() -> None:
    token, key = "gh" + "p_" + mixed(36), "AKIA" + upper(16)

    assert redacted(f"{token} {key}\n{token}") == Redacted(
        text="[REDACTED:github-token] [REDACTED:aws-key-id]\n[REDACTED:github-token]",
        count=3,
        kinds={"github-token": 2, "aws-key-id": 1},
    )


TOKEN = "gh" + "p_" + mixed(36)
LEFT = {
    "a <private>b</private> c": "a [REDACTED:private] c",
    "<private>b</private><private>d</private>": "[REDACTED:private][REDACTED:private]",
    "<private></private>": "[REDACTED:private]", "a <private>b\nc": "a [REDACTED:private]",
    "a <private>": "a [REDACTED:private]",
    "a </private> b <Private\n>c</PRIVATE > d": "a </private> b [REDACTED:private] d",
    "<private>a<private>b</private>c</private>d": "[REDACTED:private]d",
    "<private>a<private>b</private>c": "[REDACTED:private]",
    "<private>a</private>b</private>c": "[REDACTED:private]b</private>c",
    "Local<Private> name, Local<Data> value": "Local<Private> name, Local<Data> value",
    "</private> Local<Private> name": "</private> Local<Private> name",
    "<private>a</private> Local<Private> b": "[REDACTED:private] Local<Private> b",
    "Local<Private> name</private> value": "Local[REDACTED:private] value",
    "Local<private> name": "Local[REDACTED:private]",
    "Local<PRIVATE> name": "Local[REDACTED:private]", "a <Private> name": "a [REDACTED:private]",
    "数<Private> name": "数[REDACTED:private]",
    **{
        f"key: {DASHES}BEGIN RSA PRIVATE KEY{DASHES}{newline}{newline.join(key)}{after}":
        f"key: [REDACTED:private-key]{after}"
        for newline, key, after in (
            ("\n", [*KEY_LINES[:2], mixed(9)], ""), (r"\n", KEY_LINES, r'\n"}'),
            ("\n", ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES,0A1B", "", KEY_LINES[0]], ""),
            ("\n> ", KEY_LINES, "\n> \n> Yours"),
            ("\n", KEY_LINES, "\n" + armored("CERTIFICATE", KEY_LINES)),
        )
    },
    f"<private>{TOKEN}</private>": "[REDACTED:private]",
    f"<private>{TOKEN}": "[REDACTED:private]",
    f"api_key='{TOKEN}'": "api_key='[REDACTED:github-token]'",
    f"Authorization: Bearer {TOKEN}": "Authorization: Bearer [REDACTED:github-token]",
    f"https://x:{TOKEN}@github.com/a": "https://x:[REDACTED:github-token]@github.com/a",
    "a://[REDACTED:x]:hunter2@h": "a://[REDACTED:x]:[REDACTED:connection-password]@h",
    "a://u:1<private>2</private>3@h": "a://u:[REDACTED:connection-password]@h",
    armored("PRIVATE KEY", ["<private>", *KEY_LINES]): "[REDACTED:private-key]",
    armored("PRIVATE KEY", ["<private>", *KEY_LINES]) + " " * 30: "[REDACTED:private]",
    f"{TOKEN}-<private>x</private>": "[REDACTED:github-token]-[REDACTED:private]",
    "<private>x</private>root:hunter2x@tcp(h)/db": (
        "[REDACTED:private]root:[REDACTED:connection-password]@tcp(h)/db"
    ),
    "DB_PASSWORD=S3cr3t<private>x</private>P@ss!": "DB_PASSWORD=[REDACTED:password]",
    f"AKIA{upper(16)}{TOKEN}": f"AKIA{upper(16)}{TOKEN}",
    f"AKIA{upper(16)}.{TOKEN}": "[REDACTED:aws-key-id].[REDACTED:github-token]",
}  # fmt: skip


@for_each("text", LEFT)
def test_parts_that_are_private_cut_off_or_overlapping_go_whole_and_nothing_else(text: str) -> None:
    assert redacted(text).text == LEFT[text]


# registered values, a text, and what is left of it
VALUES = {
    "one within a word": ([("db", "hunter22")], "xhunter22x", "x[REDACTED:db]x"),
    "the longest": (
        [("short", "hunter22"), ("long", "hunter2233")],
        "hunter2233 hunter22",
        "[REDACTED:long] [REDACTED:short]",
    ),
    "two that overlap": ([("a", "abcdefgh"), ("b", "efghijkl")], "abcdefghijkl.", "[REDACTED:a]."),
    "one that overlaps itself": ([("a", "abcabcabc")], "abcabcabcabc.", "[REDACTED:a]."),
    "one of signs": ([("re", "(a+)+$.*[")], "x(a+)+$.*[y", "x[REDACTED:re]y"),
    "one with a line end": (
        [("pem", "line one\r\nline two")], "line one\r\nline two", "[REDACTED:pem]",
    ),
    "one that is a token": ([("gh", TOKEN)], TOKEN, "[REDACTED:gh]"),
    "one within a token": ([("mid", TOKEN[10:20])], TOKEN, "[REDACTED:github-token]"),
    "one that ends in a token": (
        [("x", "=token=gh")], f"=token={TOKEN}.", "[REDACTED:github-token].",
    ),
    "one within a private key": (
        [("x", KEY_LINES[0][:30])], armored("PRIVATE KEY", KEY_LINES), "[REDACTED:private-key]",
    ),
    "one that hid a token": (
        [("x", "hunter22")], f"AKIA{upper(16)}hunter22", "[REDACTED:aws-key-id][REDACTED:x]",
    ),
    "one that is made up by a placeholder": (
        [("x", "hunter22["), ("y", "]swordfish")],
        "hunter22<private>no</private>swordfish",
        "hunter22[REDACTED:private]swordfish",
    ),
    "one in a foreign placeholder": (
        [("x", "hunter22")], "[REDACTED:hunter22]", "[REDACTED:[REDACTED:x]]",
    ),
    "one that is its own id": (
        [("hunter22", "hunter22")], "[REDACTED:hunter22]", "[REDACTED:[REDACTED:value]]",
    ),
    "one like a placeholder": (
        [("x", "REDACTED"), ("y", "github-token")],
        f"REDACTED {TOKEN} github-token",
        "[REDACTED:x] [REDACTED:github-token] [REDACTED:y]",
    ),
}  # fmt: skip


@for_each("name", VALUES)
def test_a_registered_value_is_taken_out_wherever_it_stands(name: str) -> None:
    values, text, expected = VALUES[name]
    rules = Rules(values=tuple(values))

    assert rules.redacted(text).text == expected
    assert rules.redacted(expected) == Redacted(text=expected)


IDS = {
    "db.prod_1-x": "db.prod_1-x", "a b\r\n[c]": "a-b-c-", "": "value", "密钥": "-",
    "x" * 100: "x" * 64, "my-hunter22": "value", "other-swordfish": "value", TOKEN: "value",
}  # fmt: skip


@for_each("value_id", IDS)
def test_a_placeholder_has_only_what_is_safe_of_an_id(value_id: str) -> None:
    rules = Rules(values=((value_id, "hunter22"), ("other", "swordfish")))

    assert rules.redacted("hunter22").text == f"[REDACTED:{IDS[value_id]}]"


def test_registered_values_and_private_parts_are_kinds_that_are_never_allowed() -> None:
    rules = Rules(values=(("a", "hunter22"), ("b", "swordfish")))

    assert rules.redacted("hunter22 swordfish <private>x").kinds == {"value": 2, "private": 1}

    rules = Rules(
        values=(("x", "hunter22"),), allowed=frozenset({"hunter22", "<private>y</private>"})
    )

    assert rules.redacted("hunter22 <private>y</private>").count == 2


def test_an_allowed_text_stays_although_it_looks_like_a_secret() -> None:
    rules = Rules(allowed=frozenset({"hunter2", TOKEN}))
    text = f"a://u:hunter2@h a://u:hunter22@h {TOKEN} {TOKEN}x"

    assert rules.redacted(text).text == (
        f"a://u:hunter2@h a://u:[REDACTED:connection-password]@h {TOKEN} [REDACTED:github-token]"
    )


@for_each("kind", sorted(SAMPLES.keys() - {"private"}))
def test_a_secret_of_an_allowed_kind_stays(kind: str) -> None:
    rules = Rules(allowed_kinds=shapes.KINDS)
    others = Rules(allowed_kinds=shapes.KINDS - {kind})

    for parts in SAMPLES[kind]:
        assert rules.redacted("".join(parts)).count == 0
        assert others.redacted("".join(parts)).kinds == {kind: 1}


@for_each("kind", ["private", "value", "no-such-kind"])
def test_only_kinds_of_shapes_can_be_allowed(kind: str) -> None:
    with pytest.raises(Invalid, match=kind):
        Rules(allowed_kinds=frozenset({kind}))


REFUSED = ["", "hunter2", " hunter2 ", " " * 20, "x" * (LONGEST_VALUE + 1), "my [REDACTED:x]"]


@for_each("value", REFUSED)
def test_a_value_that_cannot_be_taken_out_safely_is_refused(value: str) -> None:
    with pytest.raises(Invalid):
        Redaction({}).register(DEFAULT_TENANT, "1", "x", value)
    with pytest.raises(Invalid):
        Rules(values=(("x", value),))


fragments = st.sampled_from(
    [
        *("".join(parts) for samples in SAMPLES.values() for parts in samples),
        *(secret for _, secret in SECRETS),
        *("<private>", "</private>", "[REDACTED:", "[REDACTED:jwt]", "]", "[", "://", "a:", "@"),
        *("Authorization: Bearer ", "api_key=", ";Password=", "eyJ", ".", "-", " ", "\n", "\\n"),
        *(f"{DASHES}BEGIN PRIVATE KEY{DASHES}", f"{DASHES}END PRIVATE KEY{DASHES}", mixed(20)),
        *("hunter22", "abcabcab", "cabcabca", "]abcabca", "AKIA", "ghp_", "gh", "x" * 20),
    ]
)
texts = st.lists(st.one_of(fragments, st.text(max_size=5)), max_size=8).map("".join)
few = st.text(st.sampled_from("abR[]:-_ED1\n"), max_size=12)
values = st.one_of(
    fragments, st.tuples(few, st.sampled_from(["abcabcab", "hunter22", "]abcabca"])).map("".join)
).filter(lambda value: len(value.strip()) >= 8 and "[REDACTED:" not in value)
rules = st.builds(
    lambda pairs: Rules(values=tuple(pairs)),
    st.lists(st.tuples(st.one_of(values, few), values), max_size=4),
)


@pytest.mark.slow
@EXAMPLES
@given(texts, rules, st.data())
def test_no_registered_value_is_left_and_the_rest_stays_in_its_order_however_often_it_is_done(
    text: str, rules: Rules, data: st.DataObject
) -> None:
    for _, value in rules.values:
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + value + text[at:]

    once = rules.redacted(text).text

    assert rules.redacted(once) == Redacted(text=once)
    left, at = PLACEHOLDER.split(once), 0
    assert [value for _, value in rules.values for part in left if value in part] == []
    for part in PLACEHOLDER.split(redacted(text).text):
        at = text.index(part, at) + len(part)


HOSTILE = [
    "<private>", "</private>", "< private", "AKIA", "eyJ", "eyJ.", "-eyJ", "eyJaaaaaaaaaa.",
    "ghp_", "sk-", "sk-ant-", "xoxb-", "xoxd-",
    f"{DASHES}BEGIN ", f"{DASHES}BEGIN PRIVATE KEY{DASHES}", f"{DASHES}END PRIVATE KEY{DASHES}",
    "://", "://a:", "a:b@", "://u:p@", "Bearer ", "Authorization: Bearer ", "password=",
    "mysql ", "mysql -p", "mysql -pa ", "sshpass -p", " login ", "redis-cli ", "mongo -p ",
    "mysql -a b ", "mysql -a=b", 'mysql -p"a ', "mysql a -u", 'sshpass -p "a ', 'curl -u "a:b ',
    "password=a1b2c3d4,a=", "PASSWORD=a1b2c3d4,A=", '"API_KEY", "', "a_key: a = ",
    "user=a pass=a1 ", "pass: ", "API_KEY=q7Rw2Zk9Lm4Xc8Vb3Nt6Hy1G.",
    "secret", "pass", "pwd", "key=", "a_key: ", "password=a(", "password=a1", "password: a1 ",
    'password="', 'password="a1', "password='a\\", "password =", "password:\n ", "password: |\n ",
    "PASSWORD value=", "name: PASSWORD\n", "secret(", "SECRET=a,", "PASS=a;b", "PASSWORD=my",
    "PASSWORD=a(a", "API_KEY=aBcDeFgHiJkLmNoP ", "api_key=jqvxzjqvxzjqvxz1 ",
    "PASSWORD=a.b", "--password ", "getenv('PASSWORD', ", '"kty":"d":"', "authorization: a ",
    "curl -u a:", "curl ", "machine a login b password ", "host=a password=", "a:b@tcp(", "q~",
    "LS0tLS1CRUdJTi", "token=", "--token ", '"auth":"', ":_authToken=", "postgres://a:/", "AZDO",
    ";password=", "?password=", "secret=", "api_key: ", "AccountKey=", "sig=", "[REDACTED:",
    "[REDACTED:jwt]", "a", "A", "0", " ", ".", "-", "_", "/", "\\", "\n", "aB3+/", "SK", ":AA",
]  # fmt: skip


HOSTILE_LENGTH = 100_000  # where time grows with its square, that is half a minute


@pytest.mark.slow
@pytest.mark.parametrize("part", sampled(HOSTILE, 12))
def test_hostile_repetition_is_answered_and_settled(part: str) -> None:
    once = redacted(part * (HOSTILE_LENGTH // len(part)))

    assert redacted(once.text) == Redacted(text=once.text)


def test_twenty_thousand_open_private_parts_hide_the_rest_once() -> None:
    assert redacted("a" + "<private>" * 20_000) == Redacted(
        text="a[REDACTED:private]", count=1, kinds={"private": 1}
    )


def test_a_registry_has_each_value_of_a_run_and_of_a_tenant_once_until_it_is_forgotten() -> None:
    redaction = Redaction({})
    register = partial(redaction.register, DEFAULT_TENANT)
    count, rules = partial(redaction.count, DEFAULT_TENANT), partial(redaction.rules, OPERATOR)
    for run, value in [
        ("ada", "hunter22"), ("bob", "hunter22"), ("bob", "swordfish"), ("bob", "hunter22"),
    ]:  # fmt: skip
        register(run, "pw", value)
    redaction.register(tenant_id("other"), "ada", "pw", "hers only")

    assert (count("ada"), count("bob")) == ({"pw": 1}, {"pw": 2})
    assert rules().values == (("pw", "hunter22"), ("pw", "swordfish"))
    assert rules() is rules()
    for _ in range(2):
        redaction.forget(DEFAULT_TENANT, "bob")
    assert (count("ada"), count("bob")) == ({"pw": 1}, {})
    assert rules().values == (("pw", "hunter22"),)
    redaction.forget(DEFAULT_TENANT, "ada")
    assert rules().values == ()


def test_a_run_has_room_for_so_many_values_and_a_tenant_for_so_many_runs() -> None:
    redaction = Redaction({})
    register = partial(redaction.register, DEFAULT_TENANT)
    runs = [str(n) for n in range(MOST_RUNS + 1)]
    for n in range(MOST_VALUES):
        register(runs[0], "pw", f"hunter22-{n}")
    for run in runs[1:-1]:
        register(run, "pw", "hunter22")

    for run, most in ((runs[0], MOST_VALUES), (runs[-1], MOST_RUNS)):
        with pytest.raises(OverQuota, match=str(most)):
            register(run, "pw", "one more than that")
    register(runs[0], "pw", "hunter22-0")  # which it knows
    register(runs[1], "pw", "swordfish")
    redaction.register(tenant_id("other"), "1", "pw", "hunter22")
    assert redaction.count(DEFAULT_TENANT, runs[0]) == {"pw": MOST_VALUES}
    redaction.forget(DEFAULT_TENANT, runs[0])
    register(runs[-1], "pw", "hunter22")


def test_a_page_about_kinds_may_itself_be_stored() -> None:
    page = " ".join(f"[REDACTED:{kind}]" for kind in (*shapes.KINDS, "private", "value"))

    assert PLACEHOLDER.sub("", page).strip() == ""
    assert redacted(page) == Redacted(text=page)

    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
    page = "\n".join(re.findall(r"^\| `([a-z-]+` \| .*) \|$", text, re.MULTILINE))

    assert redacted(page) == Redacted(text=page)


def test_a_text_without_secrets_is_searched_again_by_other_rules() -> None:
    said = "the phrase is plover"
    assert redacted(said) == redacted(said) == Redacted(text=said)

    known = Rules(values=(("phrase", "is plover"),))

    assert known.redacted(said).text == "the phrase [REDACTED:phrase]"
    assert redacted(said) == Redacted(text=said)
