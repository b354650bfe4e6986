"""The parts of the load harness that need no server: figures, tables, plots, generated configurations."""

import argparse
import ipaddress
import json
import os
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import harness
import measure
import plots
import report
import scenario
import servers
import tables
import workloads
from clients import Load, h2load, oha, own, websocket, wrk
from servers.base import Unsupported
from servers.portcullis import codes_in
from workloads import pages, plain

OPTIONS = argparse.Namespace(workers=2, connections=[64], binary="portcullis", floor="floor", seconds=None, minutes=10)


def row(server: str, cpu: float, **other) -> dict:
    return {key: 4.0 for key in report.MEDIANS} | {
        "workload": "W0.off", "title": "a & b", "connections": 64, "server": server, "cpu_us": cpu, "errors": 0,
        "requests": 9, "extra": {}} | other


class Clients(unittest.TestCase):
    RAW = {"requests": 10, "bytes": 120_000, "duration_us": 2_000_000, "p50_us": 1_500, "p99_us": 9_000,
           "connect": 1, "read": 2, "write": 3, "timeout": 4, "status": 10}

    def test_wrk_figures_are_read_in_the_units_of_the_report(self):
        load = wrk.load(wrk.parse("Running 1s test\n" + json.dumps(self.RAW) + "\n"), 404)
        self.assertEqual((load.seconds, load.p50_ms, load.p99_ms), (2.0, 1.5, 9.0))
        self.assertEqual((load.socket_errors, load.wrong, load.errors), (10, 0, 10))
        self.assertEqual(wrk.load(self.RAW, 200).wrong, 10)
        with self.assertRaises(RuntimeError):
            wrk.parse("unable to connect")

    def test_statuses_counted_one_by_one_decide_where_they_are(self):
        load = wrk.load(self.RAW | {"statuses": "404:4,503:5,404:1"}, 404)
        self.assertEqual((load.wrong, load.extra["status 404"], load.extra["status 503"]), (5, 5, 5))

    def test_h2load_figures_are_read(self):
        load = h2load.parse(
            "requests: 7 total, 9 started, 7 done, 0 succeeded, 7 failed, 1 errored, 2 timeout\n"
            "status codes: 1 2xx, 0 3xx, 6 4xx, 0 5xx\ntraffic: 1.00KB (1024) total, 8B (8) headers\n", 404)
        self.assertEqual((load.requests, load.bytes, load.socket_errors, load.wrong), (7, 1024, 3, 1))
        with self.assertRaises(RuntimeError):
            h2load.parse("could not connect", 200)

    def test_percentiles_come_from_the_log_of_requests(self):
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as log:
            log.write("".join(f"1\t200\t{1000 * number}\n" for number in range(100)))
            log.flush()
            self.assertEqual(h2load.percentiles(pathlib.Path(log.name)), (50.0, 99.0))

    def test_our_own_client_and_oha_are_read(self):
        load = own.parse('{"requests":5,"bytes":9,"seconds":1.5,"p50_us":1000,"p99_us":2000,"p999_us":3000,'
                         '"max_us":4000,"socket_errors":1,"wrong":2}')
        self.assertEqual((load.p99_ms, load.extra["longest ms"], load.errors), (2.0, 4.0, 3))
        load = oha.parse({"statusCodeDistribution": {"404": 5, "500": 1},
                          "errorDistribution": {"aborted due to deadline": 3, "connection refused": 2},
                          "latencyPercentiles": {"p50": 0.001, "p99": 0.002},
                          "summary": {"total": 1.0, "totalData": 7}}, 404)
        self.assertEqual((load.requests, load.p99_ms, load.socket_errors, load.wrong), (6, 2.0, 2, 1))

    def test_frames_have_the_length_of_the_protocol(self):
        self.assertEqual(websocket.frame(b"x" * 125, True)[:2], bytes([0x82, 0x80 | 125]))
        self.assertEqual(websocket.frame(b"x" * 128, False)[:4], bytes([0x82, 126, 0, 128]))


class Figures(unittest.TestCase):
    def test_answers_are_counted_by_status_over_all_labels(self):
        page = ('# TYPE portcullis_http_requests_total counter\n'
                'portcullis_http_requests_total{code="404",method="GET",route="none"} 7\n'
                'portcullis_http_requests_total{code="404",method="other",route="none"} 1\n'
                'portcullis_http_requests_total{code="502",method="GET",route="api"} 2\n')
        self.assertEqual(codes_in(page), {"404": 8.0, "502": 2.0})

    def test_only_statuses_that_nobody_expects_are_errors(self):
        class Counting:
            def codes(self):
                return {"404": 9.0, "502": 5.0, "499": 64.0}
        self.assertEqual(harness.other_codes(Counting(), {"502": 2.0}, {"404"}), 3)

    def test_own_processes_have_time_memory_and_descriptors(self):
        pids = measure.family(os.getpid())
        self.assertEqual(pids[0], os.getpid())
        self.assertGreater(sum(measure.cpu_seconds(pids[:1])), 0)
        self.assertGreater(measure.memory_mib(pids[:1]), 1)
        self.assertGreater(measure.descriptors(pids[:1]), 2)

    def test_children_that_have_ended_are_in_the_time_of_their_parent(self):
        fields = "S 1 1 1 0 -1 0 0 0 0 0 10 20 3 4 0 0"
        self.assertEqual(measure.times(f"7 (nginx: a) b) {fields}"), (13, 24))

    def test_a_slope_is_per_hour(self):
        self.assertAlmostEqual(measure.slope_per_hour([(0.0, 10.0), (1800.0, 11.0), (3600.0, 12.0)]), 2.0)
        self.assertEqual(measure.slope_per_hour([(0.0, 10.0)]), 0.0)

    def test_medians_and_ratios(self):
        ours, peer = report.summarize([row("portcullis", cpu) for cpu in (8.0, 9.0, 30.0)] + [row("nginx", 18.0)])
        self.assertEqual((ours["cpu_us"], ours["ratios"]["cpu_us"], ours["valid"]), (9.0, 0.5, True))
        self.assertEqual(peer["ratios"]["cpu_us"], 1.0)
        self.assertIn("0.50", report.text([ours, peer], []))

    def test_one_error_or_a_round_without_answers_makes_a_row_invalid(self):
        wrong, silent = report.summarize([row("portcullis", 8.0, errors=1), row("nginx", 9.0, requests=0)])
        self.assertFalse(wrong["valid"] or silent["valid"])
        self.assertIn("1 INVALID", report.text([wrong], []))

    def test_who_is_left_out_is_said(self):
        left_out = [{"workload": "W5", "server": "nginx", "reason": "has none"}]
        self.assertIn("W5 without nginx: has none", report.text(report.summarize([row("portcullis", 8.0)]), left_out))

    def test_tables_have_as_many_cells_in_every_line(self):
        rows = report.summarize([row("portcullis", 8.0), row("nginx", 9.0, errors=1, extra={"reloads": 2})])
        printed = tables.tables({"command": "run.sh", "summary": rows, "left_out": []})
        lines = [line for line in printed.splitlines() if line.startswith("|")]
        self.assertEqual((len(lines), len({line.count("|") for line in lines})), (4, 1))
        self.assertIn("**1: invalid**", printed)

    def test_plots_are_well_formed_and_show_every_row(self):
        rows = report.summarize([row("portcullis", 8.0), row("nginx", 9.0, errors=1)])
        drawn = plots.bars(rows)
        xml.etree.ElementTree.fromstring(drawn)
        self.assertEqual(drawn.count("url(#invalid)"), len(plots.PANELS))
        self.assertIn("a &amp; b", drawn)


class Workloads(unittest.TestCase):
    def test_a_family_is_all_of_its_kind(self):
        names = [workload.name for workload in workloads.named("W1")]
        self.assertEqual(names, ["W1a", "W1b"])
        self.assertEqual([workload.name for workload in workloads.named("W0.log")], ["W0.log"])
        self.assertGreater(len(workloads.named("W0")), 3)
        self.assertEqual(workloads.named("W99"), [])
        self.assertEqual(len({workload.name for workload in workloads.ALL}), len(workloads.ALL))

    def test_refused_clients_of_the_published_run_are_no_error_and_others_are(self):
        overload = plain.WORKLOADS[-1]
        judged = overload.judge(Load(requests=9, seconds=1, wrong=5, extra={"status 503": 3}))
        self.assertEqual(judged.errors, 2)

    def test_body_and_prefixes_are_what_they_promise(self):
        self.assertEqual(len(pages.PAGE.body), 11_776)
        networks = [ipaddress.ip_network(prefix) for prefix in pages.W0.denied()]
        self.assertEqual(len(set(networks)), 10_000)
        self.assertFalse(any(ipaddress.ip_address("127.0.0.1") in network for network in networks))
        self.assertNotEqual(pages.W0.denied(1), pages.W0.denied(2))


class Configurations(unittest.TestCase):
    def server(self, name: str, loaded: scenario.Scenario):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = servers.BY_NAME[name](name, pathlib.Path(folder.name), OPTIONS)
        server.scenario, server.origin_port = loaded, 9
        return server

    def test_all_servers_load_the_same_tables(self):
        ours = self.server("portcullis", pages.W0)
        ours.configure()
        written = json.loads((ours.folder / "portcullis.yaml").read_text())
        self.assertEqual(len(written["routes"]), 1_000)
        self.assertEqual(len((ours.folder / "deny-1.txt").read_text().split()), 10_000)
        peer = self.server("nginx", pages.W0)
        peer.version = lambda: "nginx version: nginx/1.22.1"
        self.assertEqual(peer.configuration().count("server_name host-"), 1_000)
        many = self.server("caddy", pages.W0)
        many.binary = lambda: "caddy"
        many.configure()
        routes = json.loads((many.folder / "caddy.json").read_text())["apps"]["http"]["servers"]["load"]["routes"]
        self.assertEqual(len(routes[0]["match"][0]["remote_ip"]["ranges"]), 10_000)
        self.assertEqual(len(routes[1]["match"][0]["host"]), 1_000)

    def test_nginx_is_told_about_http2_in_the_words_of_its_version(self):
        for version, in_listen in (("1.22.1", True), ("1.31.3", False)):
            server = self.server("nginx", scenario.Scenario(scenario.Forward(), http2=True))
            server.version = lambda version=version: f"nginx version: nginx/{version}"
            written = server.configuration()
            self.assertEqual((" ssl http2" in written, "http2 on;" in written), (in_listen, not in_listen))

    def test_what_a_server_cannot_do_has_a_reason(self):
        for name, loaded in (("floor", plain.OVERLOAD), ("traefik", pages.W0), ("pingap", pages.W0)):
            with self.assertRaises(Unsupported) as refused:
                self.server(name, loaded).configure()
            self.assertTrue(str(refused.exception))


if __name__ == "__main__":
    unittest.main()
