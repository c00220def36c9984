"""/metrics as Prometheus reads it: parsed by prometheus_client, and by promtool where it is installed."""

import shutil
import subprocess

from prometheus_client.parser import text_string_to_metric_families

from served import ServedTest, main


class Metrics(ServedTest):
    flags = [*ServedTest.flags, "--metrics"]

    def text(self):
        self.server.complete(prompt="once upon", max_tokens=8)
        self.assertEqual(self.server.post("/v1/completions", {"prompt": 3.5}).status, 400)
        return self.server.get("/metrics").body

    def test_prometheus_client_parses_every_family(self):
        families = {family.name: family for family in text_string_to_metric_families(self.text())}
        for name, kind in (("espalier_generation_tokens", "counter"), ("espalier_num_requests_running", "gauge"),
                           ("espalier_time_to_first_token_seconds", "histogram"), ("espalier_kv_blocks", "gauge"),
                           ("espalier_step_rows", "counter"), ("espalier_build_info", "gauge")):
            self.assertEqual(families[name].type, kind)
        self.assertTrue(all(family.documentation and family.type != "unknown" for family in families.values()))
        states = {sample.labels["state"] for sample in families["espalier_kv_blocks"].samples}
        self.assertEqual(states, {"free", "cached", "held", "padding"})

    def test_promtool_has_nothing_to_say(self):
        self.assertTrue(shutil.which("promtool"), "promtool is in Debian's package prometheus")
        result = subprocess.run(["promtool", "check", "metrics"], input=self.text(), text=True, capture_output=True, timeout=60)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))


if __name__ == "__main__":
    main()
