"""Who may ask the page's server, what it answers, and what it never does."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from urllib.request import urlopen

import pytest
from starlette.testclient import TestClient

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.live import runs
from cascade_sim.live.access import door_of, token_in
from cascade_sim.live.runs import market_days
from cascade_sim.live.server import FILES, HERE, Live, listening
from cascade_sim.live.session import Variant
from cascade_sim.live.work import CancellableProgress, Superseded
from cascade_sim.scenario.file import load_scenario

HOST = "http://127.0.0.1"
SECRET = "a-long-secret-that-nobody-guesses"


def test_a_damaged_run_is_named_and_the_others_stay(client):
    first, broken, market = client.get("/api/runs").json()["runs"]
    assert broken["state"] == "damaged" and "manifest.json" in broken["error"]
    assert first["state"] != "damaged" and market["state"] != "damaged"
    refused = client.get("/api/about", params={"run": 1})
    assert refused.status_code == 400 and "manifest.json" in refused.json()["error"]
    assert client.get("/api/about", params={"run": 0}).status_code == 200


def test_an_answer_of_some_requests_says_so_and_that_of_all_as_well(client):
    for more, requests in (({}, 500), ({"all": "1"}, 500)):  # as many blocks as hold 2,048 are all of them
        found = client.get("/api/answer", params={"set": "auction.reserve_cpc=0.3", **more}).json()
        assert (found["requests"], found["of"]) == (requests, 500)
    assert set(found) >= {"measures", "funnel", "payers", "pages_changed", "command"}


def test_any_arm_can_be_held_against_any_other(client):
    found = client.get("/api/answer", params={"arm": "distill-pre", "against": "logloss"}).json()
    assert found["measures"]["rcs"]["lift"]["value"] != 0 and found["command"] is None
    assert client.get("/api/answer", params={"against": "nobody"}).status_code == 400


def test_a_combination_that_the_rules_forbid_is_refused_in_their_words(client):
    found = client.get("/api/answer", params={"set": ["auction.pricing=vcg", "auction.squashing=0.5"]})
    assert found.status_code == 400 and "squashing" in found.json()["error"]


def test_a_curve_comes_point_by_point_first_quick_then_whole(client):
    found = client.get("/api/curve", params={"parameter": "cascade.slots", "set": "auction.reserve_cpc=0.2"})
    points = [json.loads(line) for line in found.text.splitlines()]
    assert [(p["value"], p["is_all"]) for p in points] == [(v, a) for a in (False, True) for v in (1, 2, 3)]
    assert all(p["measures"]["expected_revenue_per_request"]["lift"]["low"] is not None for p in points)
    choices = client.get("/api/curve", params={"parameter": "auction.pricing"}).text.splitlines()
    assert "soft_floor" in next(json.loads(line)["error"] for line in choices if "error" in json.loads(line))
    assert "no parameter" in client.get("/api/curve", params={"parameter": "world.ads"}).text


def test_a_market_has_its_day_and_the_names_of_the_log(client):
    about = client.get("/api/about", params={"run": 2}).json()
    assert about["is_log"] and "cascade.retrieval.size" not in {
        parameter["path"] for parameter in about["parameters"]
    }
    asked = {"run": 2, "set": "auction.reserve_cpc=0.3", "all": "1"}
    found = client.get("/api/answer", params=asked).json()
    assert (
        len(found["day"]["revenue_variant"]) == len(found["day"]["requests"]) > 1
    )  # of a short log by seconds
    assert found["day"]["unit"] == "second" and sum(found["day"]["requests"]) == 500
    assert found["measures"]["observed_revenue_share"]["variant"]["value"] > 0
    listed = client.get("/api/requests", params={**asked, "changed": "1", "sort": "loss"}).json()
    look = client.get("/api/look", params={**asked, "request": listed["rows"][0]["request"]}).json()
    ad = look["pages"]["current"][0]["ad"]
    assert (
        client.get("/api/look", params={**asked, "request": look["request"], "ad": ad}).json()["ad"]["ad"]
        == ad
    )


def test_runs_stand_side_by_side_with_what_differs(client):
    first, broken, market = client.get("/api/compare").json()["runs"]
    assert first["is_first"] and first["differs"] == [] and first["measures"]["rcs"]["value"] > 0
    assert any(line.startswith("world.") for line in market["differs"]) and "measures" not in broken


def test_runs_share_one_memory_and_the_one_left_alone_forgets(folder, market, monkeypatch):
    offered = runs.Runs([folder, market])
    first, second = offered.session(0), offered.session(1)
    monkeypatch.setattr(runs, "MAX_BYTES", first.most_bytes + second.most_bytes - 1)
    arm = first.arm(Variant(first.baseline))
    list(first.measured(arm, first.blocks(True)))
    assert first._contexts and offered.keeps(first)
    offered.session(1)
    assert not first._contexts and not offered.keeps(first) and offered.keeps(second)
    assert offered.session(0) is first and list(first.measured(arm, [0])) == [None]  # found again


def test_an_exact_answer_that_nobody_waits_for_is_given_up(session):
    with pytest.raises(Superseded):
        session.exact(Variant(session.baseline, ("cascade.slots=2",)), CancellableProgress(lambda: False))


# The door


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "0.0.0.0"]
)
def test_a_name_that_is_not_ours_is_turned_away(client, host):
    assert client.get("/api/runs", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8350", "localhost:9", "[::1]:8350", "LOCALHOST"])
def test_our_own_names_are_let_in(client, host):
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


def test_other_sites_may_not_ask(client):
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert client.get("/api/runs", headers=headers).status_code == 403
    assert (
        client.get("/api/runs", headers={"origin": HOST, "sec-fetch-site": "same-origin"}).status_code == 200
    )
    for method in ("post", "put", "delete", "patch"):
        assert getattr(client, method)("/api/runs").status_code == 405


def test_every_answer_says_what_the_page_may_load(client):
    for path in (*FILES, "/api/runs", "/nothing", "/api/answer?set=x"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


def test_nothing_but_the_files_of_the_page_is_served(client, folder):
    for path in (
        *(
            "/scenario.yaml",
            "/../manifest.json",
            "/..%2f..%2fetc/passwd",
            "/live.py",
            "/server.py",
        ),
        *(f"/{folder}/manifest.json", "/api", "/api/", "/static/live.js", "/live.js/x", "/%00"),
    ):
        assert client.get(path).status_code == 404, path


def test_the_page_builds_no_html_from_text_and_loads_nothing_from_elsewhere():
    for name, _ in FILES.values():
        text = (HERE / name).read_text()
        for word in (
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "https://",
        ):
            assert word not in text, (name, word)
    assert (HERE / "draw.js").read_text().count("http://") == 1  # the name of SVG, which nobody fetches


def test_beyond_this_machine_its_addresses_are_known_and_nothing_else():
    door = door_of("0.0.0.0", 80, SECRET)
    assert door.knows("192.168.1.7:8350") and door.knows("localhost") and not door.knows("evil.example")
    assert not door_of("192.168.1.7", 80, SECRET).knows("10.0.0.1")


def test_a_token_is_made_anew_if_none_is_given_and_stands_in_quotes_in_the_address():
    first, second = (door_of("127.0.0.1", 8350) for _ in range(2))
    assert len(first.token) == 48 and first.token != second.token
    assert first.address("127.0.0.1") == f"'http://127.0.0.1:8350/?token={first.token}'"
    assert first.token not in repr(first)


@pytest.mark.parametrize(
    "token", ["short", "sixteen signs and spaces", "a;b=c-and-some-more-of-it", "é" * 20, "", "a" * 16 + "\n"]
)
def test_a_token_that_an_address_or_a_cookie_would_cut_is_refused(token):
    with pytest.raises(UserError, match="16 to 512") as error:
        door_of("127.0.0.1", 80, token)
    assert f"{token!r}" not in str(error.value)


def test_a_token_can_come_from_a_file(tmp_path):
    (tmp_path / "token").write_text(f"{SECRET}\n")
    assert token_in(tmp_path / "token") == SECRET
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "none", "."):
        with pytest.raises(UserError, match="--token-file"):
            token_in(tmp_path / name)


def test_nobody_gets_in_without_the_token_and_the_cookie_is_not_the_token(folder):
    door = door_of("127.0.0.1", 8350, SECRET)
    with TestClient(Live([folder]).app(door), HOST) as client:
        for path in ("/", "/live.js", "/api/runs", "/?token=wrong", "/api/runs?token=", "/?token=%ff"):
            assert client.get(path).status_code == 401, path
        for value in (SECRET, door_of("127.0.0.1", 8350, SECRET).cookie):  # of another process
            assert client.get("/", headers={"cookie": f"cascade_sim_8350={value}"}).status_code == 401
        first = client.get("/", params={"token": SECRET})
        cookie = first.headers["set-cookie"]
        assert first.status_code == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert cookie.startswith("cascade_sim_8350=") and SECRET not in cookie
        assert client.get("/api/runs").status_code == 200  # by the cookie


def test_a_run_that_breaks_in_any_way_is_named_and_the_others_stay(folder, tmp_path, monkeypatch):
    crafted = tmp_path / "crafted"
    shutil.copytree(folder, crafted)

    def breaks(path, *more):
        if path == crafted:
            raise RecursionError("too deep")
        return load(path, *more)

    load = runs.open_run
    monkeypatch.setattr(runs, "open_run", breaks)
    offered = runs.Runs([crafted, folder])
    assert tells(offered.offered[0].error, "crafted", "RecursionError: too deep")
    assert offered.offered[1].error is None and offered.session(1) is not None
    with pytest.raises(UserError, match="crafted"):
        offered.session(0)


@pytest.mark.parametrize("metrics", [{"arms": [1]}, {"arms": {"logloss": 5}}, {"requests": float("nan")}])
def test_figures_that_are_none_leave_the_others_side_by_side(folder, metrics):
    offered = runs.Runs([folder, folder])
    offered.offered[0].run = replace(offered.offered[0].run, metrics={"arms": {"logloss": [1]}, **metrics})
    first, second = offered.side_by_side()["runs"]
    assert first["state"] == "damaged" and "measures" in second


def test_with_no_run_that_opens_there_is_nothing_to_serve(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    assert main(["serve", str(tmp_path / "run"), "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert tells(told, "warning:", tmp_path / "run", "error:")


def test_a_server_that_is_closed_stops_its_work(folder):
    live = Live([folder])
    live.close()
    assert live.is_closed and not live.worker._thread.is_alive()
    live.close()  # twice is harmless


def test_whoever_follows_the_address_at_once_is_not_refused():
    with listening("127.0.0.1", 0) as listener:
        socket.create_connection(listener.getsockname()).close()
        with pytest.raises(UserError, match="give another --port"):
            listening("127.0.0.1", listener.getsockname()[1])


@pytest.mark.drill
def test_the_command_answers_at_its_address_until_it_is_interrupted(folder):
    words = [sys.executable, "-m", "cascade_sim", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()) as served:
        address, _, token = served.stdout.readline().split()[0].strip("'").partition("?")
        with urlopen(f"{address}api/runs?{token}") as found:
            assert json.load(found)["runs"][0]["state"] != "damaged"
        served.send_signal(signal.SIGINT)
        assert served.stdout.read() == "stopped\n"
    assert served.returncode == 0


def test_words_in_a_run_cannot_become_markup(client):
    found = client.get("/api/exact", params={"set": "<script>alert(1)</script>=1"})
    assert found.status_code == 400 and found.headers["content-type"] == "application/json"


def test_a_mistyped_parameter_is_left_out_with_the_reason_and_does_not_block_the_others(client):
    def asked(*words):
        return client.get("/api/answer", params={"set": list(words)})

    good = asked("auction.reserve_cpc=0.6").json()
    found = asked("auction.reserv=1", "auction.reserve_cpc=0.6", "cascade.slots=many").json()
    left = {each["word"]: each["why"] for each in found.pop("left_out")}
    assert list(left) == ["auction.reserv=1", "cascade.slots=many"] and good.pop("left_out") == []
    assert "did you mean 'reserve_cpc'" in left["auction.reserv=1"]
    assert found == good
    # What two parameters forbid together is nobody's slip of the pen.
    clash = asked("auction.pricing=vcg", "auction.squashing=0.5")
    assert clash.status_code == 400 and "vcg needs squashing 1" in clash.json()["error"]


def test_a_run_with_a_market_says_what_its_days_brought_beside_the_evaluation():
    scenario = load_scenario("market_day")
    entry = {"value": 0.371, "low": 0.36, "high": 0.38}
    metrics = {
        "arms": {"current": {"revenue_per_request": entry}},
        "market": {"arms": {"current": {"revenue_per_request": 0.081, "ctr": float("nan"), "hours": {}}}},
    }
    found = market_days(metrics, scenario)
    assert found["has_budgets"] and found["days"] == scenario.market.days
    assert found["arms"]["current"]["revenue_per_request"] == {"days": 0.081, "evaluation": 0.371}
    assert found["arms"]["current"]["ctr"] == {"days": None, "evaluation": None}
    assert market_days({"arms": metrics["arms"]}, scenario) is None
    assert market_days(metrics, load_scenario("quick")) is None
