"""Tests of train/convert.py.

Run: python train/tests/convert_test.py
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import pickle
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True

import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "train"))
specification = importlib.util.spec_from_file_location("convert", ROOT / "train" / "convert.py")
convert = importlib.util.module_from_spec(specification)
specification.loader.exec_module(convert)


class Trap:
    """Pickles to a call that leaves a file behind."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return (open, (self.marker, "w"))


class Convert(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def save(self, content, name="pytorch_model.bin", **options):
        torch.save(content, self.folder / name, **options)
        return self.folder / name

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = convert.main([str(a) for a in arguments])
        return code, out.getvalue(), err.getvalue()

    def refusal(self, *arguments):
        code, out, err = self.run_main(*arguments)
        self.assertEqual(code, 1)
        self.assertEqual(out, "")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertEqual([p.name for p in self.folder.iterdir() if "espalier-tmp" in p.name], [])
        return err

    def test_every_type_arrives_bit_for_bit(self):
        tensors = {
            "fc.weight": torch.randn(3, 4).half(),
            "norm.weight": torch.randn(4).bfloat16(),
            "lm_head.weight": torch.randn(2, 4),
            "d2t": torch.tensor([5, 7]),
            "t2d": torch.tensor([True, False]),
        }
        code, out, _ = self.run_main(self.save(tensors))
        self.assertEqual(code, 0)
        self.assertIn("5 tensors", out)
        found = load_file(self.folder / "model.safetensors")
        self.assertEqual(found.keys(), tensors.keys())
        for name, tensor in tensors.items():
            self.assertEqual(found[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(found[name], tensor))

    def test_the_file_of_the_first_pickle_format_is_read_too(self):
        self.assertEqual(self.run_main(self.save({"a": torch.ones(2)}, _use_new_zipfile_serialization=False))[0], 0)

    def test_other_names_keep_their_stem(self):
        self.run_main(self.save({"0.0.linear.weight": torch.ones(2, 2)}, "medusa_lm_head.pt"))
        self.assertTrue((self.folder / "medusa_lm_head.safetensors").exists())

    def test_a_directory_with_one_pickle_will_do(self):
        self.save({"a": torch.ones(2)})
        self.assertEqual(self.run_main(self.folder)[0], 0)
        self.assertTrue((self.folder / "model.safetensors").exists())

    def test_shards_become_one_file(self):
        self.save({"a": torch.ones(2)}, "pytorch_model-00001-of-00002.bin")
        self.save({"b": torch.zeros(2)}, "pytorch_model-00002-of-00002.bin")
        names = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
        (self.folder / convert.INDEX).write_text(json.dumps({"weight_map": names}))
        self.assertEqual(self.run_main(self.folder)[0], 0)
        self.assertEqual(load_file(self.folder / "model.safetensors").keys(), {"a", "b"})

    def test_shards_outside_the_folder_are_refused(self):
        (self.folder / convert.INDEX).write_text(json.dumps({"weight_map": {"a": "../elsewhere.bin"}}))
        self.assertIn("../elsewhere.bin", self.refusal(self.folder))

    def test_tensors_that_share_memory_are_written_out(self):
        base = torch.arange(6.0).reshape(2, 3)
        self.run_main(self.save({"a": base, "b": base, "c": base.T}))
        found = load_file(self.folder / "model.safetensors")
        self.assertTrue(torch.equal(found["a"], found["b"]))
        self.assertTrue(torch.equal(found["c"], base.T))

    def test_a_wrapped_table_is_unwrapped(self):
        self.assertEqual(self.run_main(self.save({"state_dict": {"a": torch.ones(2)}}))[0], 0)
        self.assertEqual(load_file(self.folder / "model.safetensors").keys(), {"a"})

    def test_code_in_a_pickle_is_not_run(self):
        marker = self.folder / "ran"
        for name, new in (("old.bin", False), ("new.bin", True)):
            path = self.save({"a": torch.ones(2), "b": Trap(marker)}, name, _use_new_zipfile_serialization=new)
            message = self.refusal(path)
            self.assertIn("expected nothing but tensors", message)
            self.assertNotIn("weights_only", message)
        bare = self.folder / "bare.bin"
        bare.write_bytes(pickle.dumps(Trap(marker)))
        self.refusal(bare)
        self.assertFalse(marker.exists())

    def test_content_that_is_no_tensor_is_refused_by_name(self):
        self.assertIn("epoch: expected a tensor, got int", self.refusal(self.save({"a": torch.ones(2), "epoch": 3})))
        self.assertIn("got list", self.refusal(self.save([torch.ones(2)])))
        self.assertIn("empty", self.refusal(self.save({})))
        self.assertIn("text", self.refusal(self.save({1: torch.ones(2)})))
        self.assertIn("dense", self.refusal(self.save({"a": torch.ones(2, 2).to_sparse()})))

    def test_damaged_and_foreign_files_are_refused(self):
        path = self.save({"a": torch.ones(1000)})
        path.write_bytes(path.read_bytes()[:700])
        self.refusal(path)
        path.write_bytes(b"")
        self.refusal(path)
        path.write_bytes(b"not a pickle")
        self.refusal(path)
        other = self.folder / "model.gguf"
        other.write_bytes(b"GGUF")
        self.assertIn(".gguf", self.refusal(other))
        self.assertIn("no such", self.refusal(self.folder / "absent.bin"))

    def test_an_ambiguous_directory_is_refused(self):
        self.save({"a": torch.ones(2)}, "one.bin")
        self.save({"a": torch.ones(2)}, "two.pt")
        message = self.refusal(self.folder)
        self.assertIn("one.bin, two.pt", message)

    def test_a_file_that_exists_is_kept_unless_forced(self):
        path = self.save({"a": torch.ones(2)})
        kept = self.folder / "model.safetensors"
        kept.write_text("mine")
        self.assertIn("--force", self.refusal(path))
        self.assertEqual(kept.read_text(), "mine")
        self.assertEqual(self.run_main(path, "--force")[0], 0)
        self.assertEqual(load_file(kept).keys(), {"a"})

    def test_a_failed_write_leaves_nothing_behind(self):
        path = self.save({"a": torch.ones(2)})
        with mock.patch("safetensors.torch.save_file", side_effect=OSError("disk full")):
            self.assertIn("disk full", self.refusal(path))
        self.assertFalse((self.folder / "model.safetensors").exists())

    def test_the_old_file_stays_when_replacing_it_fails(self):
        path = self.save({"a": torch.ones(2)})
        kept = self.folder / "model.safetensors"
        kept.write_text("mine")
        with mock.patch("safetensors.torch.save_file", side_effect=OSError("disk full")):
            self.refusal(path, "--force")
        self.assertEqual(kept.read_text(), "mine")

    def test_the_result_must_be_called_safetensors(self):
        self.assertIn(".safetensors", self.refusal(self.save({"a": torch.ones(2)}), "--out", self.folder / "x.bin"))


if __name__ == "__main__":
    unittest.main()
