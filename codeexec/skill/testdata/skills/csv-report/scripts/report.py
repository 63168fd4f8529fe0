import csv
import os
import sys

with open(sys.argv[1]) as f:
    rows = list(csv.DictReader(f))
with open(os.path.join("out", "report.md"), "w") as f:
    f.write(f"# Report\n\n{len(rows)} rows, {len(rows[0])} columns\n")
print("columns:", ", ".join(rows[0]))
