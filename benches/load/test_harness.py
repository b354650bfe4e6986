"""The parts of the load harness that need no server: figures, tables, generated configurations."""

import argparse
import ipaddress
import json
import os
import pathlib
import tempfile
import unittest

import client
import measure
import report
import servers
import workloads

OPTIONS = argparse.Namespace(workers=2, connections=[64], log="off", binary="portcullis", workloads=["W0"])


class Figures(unittest.TestCase):
    def test_wrk_figures_are_read_in_the_units_of_the_report(self):
        load = client.parse('Running 1s test\n{"requests":10,"bytes":120000,"duration_us":2000000,"p50_us":1500,'
                            '"p99_us":9000,"connect":1,"read":2,"write":3,"timeout":4,"status":10}\n')
        self.assertEqual(load["seconds"], 2.0)
        self.assertEqual((load["p50_ms"], load["p99_ms"]), (1.5, 9.0))
        self.assertEqual(load["socket_errors"], 10)
        self.assertEqual(workloads.BY_NAME["W0"].wrong_answers(load), 0)
        with self.assertRaises(RuntimeError):
            client.parse("unable to connect")

    def test_answers_are_counted_by_status_over_all_labels(self):
        page = ('# TYPE portcullis_http_requests_total counter\n'
                'portcullis_http_requests_total{code="404",method="GET",route="none"} 7\n'
                'portcullis_http_requests_total{code="404",method="other",route="none"} 1\n'
                'portcullis_http_requests_total{code="502",method="GET",route="api"} 2\n')
        self.assertEqual(servers.codes_in(page), {"404": 8.0, "502": 2.0})

    def test_own_processes_have_time_and_memory(self):
        pids = measure.family(os.getpid())
        self.assertEqual(pids[0], os.getpid())
        self.assertGreater(sum(measure.cpu_seconds(pids[:1])), 0)
        self.assertGreater(measure.memory_mib(pids[:1]), 1)

    def test_medians_and_ratios(self):
        def row(server, cpu):
            return {key: 4.0 for key in report.MEDIANS} | {
                "workload": "W0", "connections": 64, "server": server, "cpu_us": cpu, "errors": 1}
        rounds = [row("portcullis", cpu) for cpu in (8.0, 9.0, 30.0)] + [row("nginx", 18.0)]
        ours, peer = report.summarize(rounds, "nginx")
        self.assertEqual((ours["cpu_us"], ours["ratios"]["cpu_us"], ours["errors"]), (9.0, 0.5, 3))
        self.assertEqual(peer["ratios"]["cpu_us"], 1.0)
        self.assertIn("0.50", report.table([ours, peer], "nginx"))


class Handshakes(unittest.TestCase):
    def test_both_kinds_load_the_same_servers_and_count_what_is_wrong(self):
        full, resumed = workloads.BY_NAME["W3"], workloads.BY_NAME["W3r"]
        self.assertEqual(len(full.body), 256)
        self.assertEqual(full.body, resumed.body)
        self.assertEqual((full.resume, resumed.resume), (False, True))
        self.assertEqual(full.wrong_answers({"wrong": 3}), 3)
        self.assertEqual(full.connection_counts([64, 256]), resumed.connection_counts([512]))


class Configurations(unittest.TestCase):
    def test_body_and_prefixes_are_what_they_promise(self):
        w0 = workloads.BY_NAME["W0"]
        self.assertEqual(len(w0.body), 11_776)
        networks = [ipaddress.ip_network(prefix) for prefix in w0.denied]
        self.assertEqual(len(set(networks)), 10_000)
        loopback = ipaddress.ip_address("127.0.0.1")
        self.assertFalse(any(loopback in network for network in networks))

    def test_both_servers_load_the_same_tables(self):
        w0 = workloads.BY_NAME["W0"]
        with tempfile.TemporaryDirectory() as folder:
            ours = servers.Portcullis("portcullis", pathlib.Path(folder), OPTIONS)
            ours.configure(w0)
            written = json.loads((ours.folder / "portcullis.yaml").read_text())
            denied = (ours.folder / "deny.txt").read_text().split()
            peer = servers.Nginx("nginx", pathlib.Path(folder), OPTIONS)
            nginx = servers.nginx_configuration(peer, w0, peer.routes(w0))
        self.assertEqual(len(written["routes"]), nginx.count("server_name host-"))
        self.assertEqual(len(denied), nginx.count(" 1;\n"))


if __name__ == "__main__":
    unittest.main()
