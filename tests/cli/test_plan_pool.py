"""atom plan --pool from outside: one screen, one object, one line for what makes no sense, and exit codes."""
import xml.etree.ElementTree

import tool

FRIENDS = """
step_tokens: 16384
hosts:
  - {name: friends, device: rtx-4090, host_memory: 64GiB, link: home-100-20, region: eu, count: 2}
  - {name: lab, device: h100, link: fibre, region: us}
regions:
  - {between: [eu, us], delay_ms: 45}
"""
MODEL = ["plan", "--model", "gpt2-124m", "--sequence-len", 512]


class PlanPool(tool.Case):
    def ask(self, text, *more):
        self.write("pool.yml", text)
        return self.ok(*MODEL, "--pool", "pool.yml", *more)

    def refused(self, text, says, code=2):
        self.write("pool.yml", text)
        done = self.fails(code, *MODEL, "--pool", "pool.yml", says=says)
        return done

    def test_one_screen_and_one_object(self):
        told = self.ask(FRIENDS, "--json").json()
        self.assertEqual((told["hosts"], told["micro_batches"], told["codec"]), (3, 8, "int8"))
        ways = {way["mode"]: way for way in told["ways"]}
        self.assertEqual(set(ways), {"gradients", "parameters", "stages"})
        self.assertFalse(ways["stages"]["atom_trains_it"])
        self.assertIn(told["recommended"], ("gradients", "parameters"))
        for way in ways.values():
            parts = sum(way[part + "_seconds"] for part in ("compute", "link", "optimizer", "bubble"))
            self.assertAlmostEqual(parts, way["step_seconds"], delta=1e-9 * parts)
            self.assertEqual([host["name"] for host in way["hosts"]], ["friends-1", "friends-2", "lab"])
            self.assertEqual(way["first_layers"][0], 0)
            self.assertEqual(way["first_layers"][-1], told["layers"])
        self.assertIn("one more host like lab", [change["change"] for change in told["changes"]])
        self.assertEqual(told, self.ask(FRIENDS, "--json").json(), "the same question has the same answer")
        people = self.ask(FRIENDS).out
        self.assertLessEqual(len(people.splitlines()), 24)
        for words in ("gradients summed", "weights averaged", "recommended", "atom cannot train in stages yet",
                      "2 x friends", "one more host like friends", "fibre lines twice as fast"):
            self.assertIn(words, people)

    def test_delayed_updates_where_they_pay(self):
        boxes = "step_tokens: 1048576\nhosts: [{name: box, device: rtx-4090, host_memory: 64GiB, link: %s, count: 3}]\n"
        for link, pays in ("fibre", True), ("lan-10g", False):
            told = self.ask(boxes % link, "--json").json()
            sums = next(w for w in told["ways"] if w["mode"] == "gradients")
            side = told["delayed_gradients"]
            longer = max(side["compute_seconds"], side["sync_seconds"]) + side["optimizer_seconds"]
            self.assertAlmostEqual(side["step_seconds"], longer, delta=1e-9 * longer)
            parts = sum(side[part + "_seconds"] for part in ("compute", "link", "optimizer", "bubble"))
            self.assertAlmostEqual(side["step_seconds"], parts, delta=1e-9 * parts)
            self.assertEqual(side["tokens_per_second"] >= 1.1 * sums["tokens_per_second"], pays, link)
            self.assertEqual("delayed_updates" in self.ask(boxes % link).out, pays, link)
            # A member needs 8 bytes more for each parameter.
            more = [b["memory_bytes"] - a["memory_bytes"] for a, b in zip(sums["hosts"], side["hosts"])
                    if a["takes_part"] and b["takes_part"]]
            self.assertTrue(more and all(x > 0.9 * 8 * 124e6 for x in more), more)

    def test_several_devices(self):
        boxes = "step_tokens: %d\nhosts: [{name: box, device: rtx-4090, host_memory: 64GiB, link: lan-10g, count: 2, devices: %d}]\n"
        one, two = ({w["mode"]: w for w in self.ask(boxes % (2**19, n), "--json").json()["ways"]} for n in (1, 2))
        for mode in ("gradients", "parameters"):
            self.assertLess(two[mode]["compute_seconds"], one[mode]["compute_seconds"])
        self.assertEqual(one["stages"], two["stages"])  # a stage is computed by one
        self.refused(boxes % (1024, 2), ["pool.yml:2: devices", "raise step_tokens"])
        self.refused(boxes % (2**19, 9), "devices")

    def test_matrices(self):
        hosts = "delays_csv: d.csv\nmbit_csv: m.csv\nhosts: [{name: box, device: rtx-4090, count: 3}]\n"
        self.write("d.csv", ",1,20\n1,,20\n20,20,\n")
        self.write("m.csv", ",900,20\n900,,20\n100,100,\n")
        self.assertEqual(self.ask(hosts, "--json").json()["hosts"], 3)
        self.write("m.csv", ",900,20\n0,,20\n100,100,\n")
        self.refused(hosts, "box-2 and box-1 are not connected")
        self.write("m.csv", ",900\n900,\n")
        self.refused(hosts, "m.csv:1: 2 cells; there are 3 hosts")

    def test_picture(self):
        told = self.ask(FRIENDS, "--picture", "p.svg", "--json").json()
        ways = {way["mode"]: way for way in told["ways"]}
        shown = [ways[told["recommended"]], ways["stages"]]
        drawn = xml.etree.ElementTree.parse(self.path("p.svg")).getroot()
        marked = {name: [e for e in drawn.iter() if e.get("class") == name] for name in ("host", "link")}
        self.assertEqual(len(marked["host"]), 3 * len(shown), "every host, whether it takes part or not")
        titles = [e.findtext("{http://www.w3.org/2000/svg}title", "") for e in marked["link"]]
        stages = ways["stages"]
        self.assertEqual(sum("Mbit/s" in title for title in titles), (stages["stages"] - 1) * stages["groups"])
        texts = "".join(drawn.itertext())
        for words in ("friends-1", "lab", "home-100-20", "atom cannot train in stages yet", "stage 2: layers"):
            self.assertIn(words, texts)
        self.check_boxes(drawn, marked)
        self.ask(FRIENDS, "--picture", "p.svg")
        self.write("mine.txt", "mine")
        self.fails(2, *MODEL, "--pool", "pool.yml", "--picture", "mine.txt", says="is not a picture of a pool")
        self.assertEqual(self.read("mine.txt"), b"mine")
        self.fails(2, *MODEL, "--picture", "p.svg", says="needs --pool")

    def check_boxes(self, drawn, marked):
        """Everything is inside of the picture, no box lies on another, and straight lines between boxes end at their edges."""
        def box(e):
            x, y, wide, high = (float(e.get(k)) for k in ("x", "y", "width", "height"))
            return x, y, x + wide, y + high

        wide, high = float(drawn.get("width")), float(drawn.get("height"))
        boxes = [box(e) for e in marked["host"]]
        for i, (x, y, right, bottom) in enumerate(boxes):
            self.assertTrue(0 <= x < right <= wide and 0 <= y < bottom <= high, boxes[i])
            for a, b, c, d in boxes[:i]:
                self.assertTrue(right <= a or c <= x or bottom <= b or d <= y, (boxes[i], (a, b, c, d)))
            for rect in marked["host"][i].iter("{http://www.w3.org/2000/svg}rect"):
                a, b, c, d = box(rect)
                self.assertTrue(0 <= a <= c <= right - x and 0 <= b <= d <= bottom - y, boxes[i])
        for e in drawn.iter("{http://www.w3.org/2000/svg}text"):
            if e.get("y") is not None:
                self.assertTrue(0 <= float(e.get("x")) <= wide and 0 < float(e.get("y")) <= high, e.text)
        pairs = [e for e in marked["link"] if "Mbit/s" in e.findtext("{http://www.w3.org/2000/svg}title", "")]
        for e in pairs:
            x1, y1, x2, y2 = (float(e.get(k)) for k in ("x1", "y1", "x2", "y2"))
            self.assertTrue(any(x1 == b[2] and y1 == (b[1] + b[3]) / 2 for b in boxes), (x1, y1))
            self.assertTrue(any(x2 == b[0] and y2 == (b[1] + b[3]) / 2 for b in boxes), (x2, y2))
        # The bar of a host is as long as it is busy, and one host binds each way.
        self.assertTrue(all(e.find("{http://www.w3.org/2000/svg}rect").get("stroke-width") in "13" for e in marked["host"]))

    def test_what_makes_no_sense_is_one_line(self):
        for text, says, code in (
                ("hosts: [{device: rtx-4091, link: lan}]", 'did you mean "rtx-4090"', 2),
                ("hosts: [{device: rtx-4090, link: fiber}]", "did you mean 'fibre'", 2),
                ("hosts: [{device: rtx-4090, lnk: lan}]", "did you mean 'link'", 2),
                ("hosts: [{device: rtx-4090, host_memory: 8MiB, link: lan}]", "too small for any part", 4),
                ("hosts: [{profile: none.json, link: lan}]", "none.json", 3)):
            told = self.refused(text, says, code)
            self.assertEqual(len(told.err.strip().splitlines()), 1, told)
        self.fails(2, *MODEL, "--pool", "nothing.yml", says="nothing.yml")
        self.write("pool.yml", FRIENDS)
        self.fails(2, *MODEL, "--pool", "pool.yml", "--host-memory", "1GiB", says="described in the pool's file")
        self.fails(2, *MODEL, "--pool", "pool.yml", "--optimizer", "muon", says="only steps of AdamW")
        self.fails(2, "plan", "--pool", "pool.yml", says="--model")

    def test_a_limit_that_limits_nothing_is_said(self):
        box = "step_tokens: 16384\nhosts: [{name: box, device: rtx-4090, device_memory: %s, link: lan, count: 2}]"
        said = self.ask(box % "48GiB").err
        self.assertEqual(said.count("pool.yml:2: device_memory 48.0 GiB is more than the 23.2 GiB of NVIDIA GeForce RTX 4090"), 1, said)
        self.assertEqual(self.ask(box % "20GiB").err, "")

    def test_what_atom_cannot_train_is_shown_and_refused(self):
        told = self.refused("hosts: [{name: box, device: rtx-4090, host_memory: 1500MiB, link: lan, count: 4}]",
                            "atom cannot train it with these hosts", code=4)
        self.assertIn("stages x", told.out)
        self.assertIn("recommended       nothing", told.out)


if __name__ == "__main__":
    tool.main()
