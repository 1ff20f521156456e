"""The first program of the README is the example."""

import re
import unittest
from pathlib import Path

FOLDER = Path(__file__).parents[1]


class ReadmeTest(unittest.TestCase):
    def test_first_program(self) -> None:
        readme = (FOLDER / "README.md").read_text("utf-8")
        blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        self.assertEqual(blocks[0], (FOLDER / "examples" / "first.py").read_text("utf-8"))
        for block in blocks:
            compile(block, "README.md", "exec")


if __name__ == "__main__":
    unittest.main()
