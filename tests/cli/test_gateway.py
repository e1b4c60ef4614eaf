"""Services and rules by file and by command."""

from __future__ import annotations

import base64
import tomllib
from pathlib import Path

import pytest

from tests.cli.shell import Shell

FILE = """
store = "sqlite:///shop.db"

[services.crm]
url = "https://crm.example.com/hooks"
auth = { bearer = "env:CRM_TOKEN" }
retry = { max_attempts = 3, base = "1s", jitter = 0.2 }

[tenants."gold-*"]
weight = 3
rate = "5/s"

[rules.orders]
service = "crm"
event = "order.*"
template = { number = "{{ payload.order }}" }
"""


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "redrive.toml"
    path.write_text(FILE)
    return path


def test_what_was_applied_is_no_change_any_more(shell: Shell, file: Path) -> None:
    applied = shell("apply")
    planned = shell("plan")

    assert (applied.code, planned.code) == (0, 0)
    assert "+ service crm\n+ rule orders\n2 changes carried out.\n" in applied.out
    assert planned.out == "Nothing to change.\n"


def test_a_plan_tells_what_would_change_by_its_exit_code_too(shell: Shell, file: Path) -> None:
    shell("apply")
    file.write_text(FILE.replace("order.*", "order.paid").replace("services.crm", "services.crn"))
    broken = shell("plan")
    file.write_text(FILE.replace("order.*", "order.paid"))

    planned = shell("plan")

    assert broken.code == 2
    assert "did you mean 'crn'?" in broken.err
    assert planned.code == 1
    assert '~ rule orders: event: "order.*" → "order.paid"' in planned.out
    assert shell("plan", "--json").json["steps"][0]["action"] == "change"


def test_what_a_file_does_not_name_goes_unless_it_is_to_be_kept(shell: Shell, file: Path) -> None:
    shell("apply")
    assert shell("rule", "add", "mails", "service=crm", "event=mail.*").code == 0

    assert "- rule mails" in shell("plan").out
    assert shell("plan", "--keep-others").code == 0


def test_what_is_exported_can_be_applied(shell: Shell, file: Path, folder: Path) -> None:
    shell("apply")

    exported = shell("export-config").out

    read = tomllib.loads(exported)
    assert read["services"]["crm"]["fairness"]["weights"] == {"gold-*": 3}
    assert read["services"]["crm"]["auth"] == {"bearer": "env:CRM_TOKEN"}
    (folder / "exported.toml").write_text(exported)
    assert shell("plan", "exported.toml").code == 0


def test_a_service_is_added_changed_disabled_and_deleted(shell: Shell, file: Path) -> None:
    shell("apply")

    added = shell("service", "add", "erp", "url=https://erp.example.com", "auth.bearer=env:ERP")
    again = shell("service", "add", "erp", "url=https://erp.example.com")
    changed = shell("service", "set", "erp", "rate=10/s", "timeout=5s")
    shell("service", "set", "erp", "timeout=")
    shell("service", "disable", "erp")

    assert added.out == "Version 1 of the service erp is in force.\n"
    assert again.code == 2
    assert changed.out == "Version 2 of the service erp is in force.\n"
    [erp] = (shell("service", "show", "erp", "--json").json["document"],)
    assert erp == {
        "url": "https://erp.example.com",
        "auth": {"bearer": "env:ERP"},
        "rate": "10/s",
        "enabled": False,
    }
    assert "disabled" in shell("service", "list").out
    shell("service", "enable", "erp")
    assert shell("service", "delete", "erp").out == "Deleted the service erp.\n"
    assert shell("service", "delete", "erp").code == 1


def test_a_rule_is_added_changed_disabled_and_deleted(shell: Shell, file: Path) -> None:
    shell("apply")

    shell("rule", "add", "mails", "service=crm", "event=mail.*", "path=/mails")
    shell("rule", "set", "mails", "condition=payload.urgent")
    shell("rule", "disable", "mails")

    assert "disabled" in shell("rule", "list", "--service", "crm").out
    versions = shell("rule", "show", "mails", "--versions").out
    assert 'condition: nothing → "payload.urgent"' in " ".join(versions.split())
    shown = shell("service", "show", "crm", "--versions", "--json").json["versions"]
    assert [one["kept"]["version"] for one in shown] == [1]
    assert 'condition = "payload.urgent"' in shell("rule", "show", "mails").out
    assert shell("rule", "enable", "mails").out == "Version 4 of the rule mails is in force.\n"
    assert shell("rule", "delete", "mails").code == 0
    assert shell("rule", "show", "mails").code == 2


def test_a_rule_is_tried_before_it_is_changed(shell: Shell, file: Path) -> None:
    shell("apply")
    shell("publish", "order.paid", '{"order": 42}')

    past = shell("rule", "preview", "orders")
    sample = shell(
        *("rule", "preview", "orders", "path=/v2", "--type", "order.paid"),
        *("--sample", '{"order": 43}'),
    )

    assert past.out.endswith(
        ": sent\nPOST / at https://crm.example.com/hooks\ncontent-type: application/json\n"
        '{"number":42}\n'
    )
    assert sample.out.startswith("# order.paid sample: sent\nPOST /v2 at")
    assert '{"number":43}' in sample.out
    assert shell("rule", "preview", "orders", "--json").json["previews"][0]["verdict"] == "sent"
    assert shell("rule", "preview", "orders", "--sample", "{}").code == 2
    assert shell("rule", "preview", "orders", "--key", "k").code == 2
    assert 'path = "/v2"' not in shell("rule", "show", "orders").out
    shell("rule", "set", "orders", "condition=payload.total > 1", "on_error=skip")
    assert "fails for 1, which are passed by: payload.total" in shell("rule", "show", "orders").out


def test_a_slip_in_a_file_is_refused_with_the_nearest_word(shell: Shell, file: Path) -> None:
    file.write_text(FILE.replace("retry =", "rety ="))
    assert "did you mean 'retry'?" in shell("apply").err

    file.write_text(FILE.replace("weight", "wait"))
    assert "did you mean 'weight'?" in shell("apply").err


def test_an_event_is_told_the_rules_that_give_it(shell: Shell, file: Path) -> None:
    shell("apply")

    published = shell("publish", "order.paid", '{"order": 42}')

    assert "to crm/orders@1." in published.out
    assert "Rule" in shell("delivery", "show", "1").out
    assert "orders@1" in shell("delivery", "show", "1").out


def test_a_source_is_added_changed_and_deleted_by_command(
    shell: Shell, file: Path, folder: Path
) -> None:
    shell("apply")

    added = shell("source", "add", "github", "kind=github", "secrets=env:GITHUB_SECRET")
    shell("source", "set", "github", "unique_for=1d", "description=of the shop")
    disabled = shell("source", "disable", "github", "--why", "it has leaked")

    assert added.out == "Version 1 of the source github is in force.\n"
    assert disabled.out == "Version 3 of the source github is in force.\n"
    listed = shell("source", "list").out
    assert "/in/github" in listed
    assert "disabled" in listed
    shown = shell("source", "show", "github").out
    assert '[sources.github]\nkind = "github"\nsecrets = "env:GITHUB_SECRET"' in shown
    assert shell("source", "enable", "github").code == 0
    (folder / "kept.toml").write_text(shell("export-config").out)
    assert shell("plan", "kept.toml").code == 0
    assert shell("source", "add", "github", "kind=open").code == 2
    assert "did you mean 'github'?" in shell("source", "show", "gihub").err
    assert shell("source", "delete", "github").code == 0
    assert shell("source", "delete", "github").code == 1
    assert shell("source", "list", "--json").json == {"sources": []}
    assert shell("plan", "kept.toml").out.startswith("+ source github\n")


def test_a_schedule_is_added_changed_and_deleted_by_command(
    shell: Shell, file: Path, folder: Path
) -> None:
    shell("apply")

    added = shell("schedule", "add", "nightly", "event=report.due", "every=1d", "payload.a=1")
    changed = shell("schedule", "set", "nightly", "every=", "cron=0 2 * * *", "--why", "earlier")

    assert added.out == "Version 1 of the schedule nightly is in force.\n"
    assert changed.out == "Version 2 of the schedule nightly is in force.\n"
    assert "0 2 * * *" in shell("schedule", "list").out
    assert "no live worker serves what is stored" in shell("schedule", "list").out
    assert "version 2" in shell("schedule", "show", "nightly").out
    assert "earlier" in shell("schedule", "show", "nightly", "--versions").out
    assert shell("schedule", "pause", "nightly").code == 0
    (folder / "kept.toml").write_text(shell("export-config").out)
    assert "[schedules.nightly]\nevent = " in (folder / "kept.toml").read_text()
    assert shell("plan", "kept.toml").code == 0
    wrong = shell("schedule", "set", "nightly", "cron=61 2 * * *")
    assert (wrong.code, "The schedule 'nightly'" in wrong.err) == (2, True)
    assert "did you mean 'nightly'?" in shell("schedule", "set", "nigthly", "priority=1").err
    assert shell("schedule", "delete", "nightly").code == 0
    assert shell("schedule", "delete", "nightly").code == 1
    assert shell("plan", "kept.toml").out.startswith("+ schedule nightly\n")


def test_a_service_is_tested_by_a_command(shell: Shell, file: Path) -> None:
    file.write_text('store = "sqlite:///shop.db"\n[services.crm]\nurl = "https://crm.invalid/x"\n')
    shell("apply")

    tested = shell("service", "test", "crm", '{"order": 42}', "--type", "order.paid")

    assert tested.code == 1
    assert "POST https://crm.invalid/x" in tested.out
    assert '{"order":42}' in tested.out.replace(" ", "")
    assert "crm did not take it: The name of crm.invalid has no address" in tested.out
    assert shell("dlq", "list", "--json").json["deliveries"] == []
    assert shell("service", "test", "crm", "--json").json["is_success"] is False
    assert "did you mean 'crm'?" in shell("service", "test", "crn").err


CRM = 'store = "sqlite:///shop.db"\n[services.crm]\nurl = "https://crm.example.com"\n'
RULE = f'{CRM}[rules.orders]\nservice = "crm"\nevent = "order.*"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = = 1", "cannot be read as TOML"),
        (f"{CRM}[services.crm]", "twice"),
        ("services = 5", "services in redrive.toml is no table of tables"),
        ('[service.crm]\nurl = "https://a.example.com"', "'service'; did you mean 'services'?"),
        ("[services.crm]", "url is missing"),
        ("[services.crm]\nurl = 5", "The URL of a destination is a int"),
        ('[services.crm]\nurl = "crm.example.com"', "write http or https"),
        (f"{CRM}retry_budget = 'x'", "retry_budget is 'x'"),
        (f"{CRM}tenant = 5", "The service 'crm': tenant is 5"),
        (f"{CRM}description = 5", "description is 5"),
        (f"{CRM}timeout = 2026-01-01", "services.crm.timeout in redrive.toml is a date"),
        (f"{CRM}rate = nan", "services.crm.rate in redrive.toml is nan"),
        (f'{CRM}auth = {{ bearer = "secret:token" }}', "There is no secret 'token'"),
        (f'{CRM}auth = {{ bearer = "secret:" }}', "The name of a secret"),
        (f'{CRM}auth = {{ bearer = "env:REDRIVE_KEYS" }}', "Redrive's own"),
        (f'{CRM}auth = {{ bearer = "env:A B" }}', "without the name of a variable"),
        (f'{CRM}certificate = "client.pem"', "write where the PEM file is"),
        (RULE.replace('service = "crm"', 'service = "crn"'), "'crn'; did you mean 'crm'?"),
        (f'{RULE}template = "{{{{ playload.a }}}}"', "did you mean 'payload'?"),
        (f"{RULE}template = {{ at = 12:00:00 }}", "rules.orders.template.at in redrive.toml"),
        (f"{RULE}description = 5", "description is 5"),
        ('[schedules.nightly]\nevent = "a"', "The schedule 'nightly'"),
        ('[schedules."a b"]\nevent = "a"\nevery = "1h"', "The schedule's name is 'a b'"),
        (f"{CRM}[tenants.acme]\nwait = 2", "did you mean 'weight'?"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_the_file_and_the_key(
    shell: Shell, folder: Path, text: str, said: str
) -> None:
    store = "" if text.startswith("store") else 'store = "sqlite:///shop.db"\n'
    (folder / "redrive.toml").write_text(f"{store}{text}")

    refused = shell("apply")

    assert refused.code == 2
    assert said in refused.err
    assert "redrive.toml" in refused.err
    assert "Traceback" not in refused.err
    assert shell("plan").code == 2


def test_a_file_that_is_not_there_or_begins_with_a_mark_of_its_order(
    shell: Shell, folder: Path
) -> None:
    missing = shell("plan", "nowhere.toml")
    (folder / "redrive.toml").write_text(CRM, encoding="utf-8-sig")

    assert (missing.code, "There is no file nowhere.toml" in missing.err) == (2, True)
    assert shell("apply").code == 0


def test_a_secret_that_is_kept_may_be_referred_to(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "redrive.toml").write_text(f'{CRM}auth = {{ bearer = "secret:token" }}')
    key = base64.b64encode(bytes(range(32))).decode()
    monkeypatch.setenv("REDRIVE_KEYS", f"k1:{key}")
    assert shell("apply").code == 2

    kept = shell("secret", "set", "token", "--why", "the new contract", stdin=b"hunter2")

    assert (kept.code, kept.err) == (0, "")
    assert shell("apply").code == 0
