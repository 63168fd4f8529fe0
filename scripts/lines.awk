# awk -f scripts/lines.awk FILE…
# Prints lines of more than 140 columns. What stands in quotes is not counted:
# messages, prompts and code of another language read best unbroken. Generated
# files are left out.
FNR == 1 { raw = 0; generated = 0 }
FNR <= 5 && /Code generated .* DO NOT EDIT/ { generated = 1 }
generated { next }
{
  line = $0
  wasraw = raw
  gsub(/\\./, "", line)
  gsub(/"[^"]*"/, "", line)
  ticks = gsub(/`/, "`", line)
  if (ticks % 2) raw = !raw
  gsub(/`[^`]*`/, "", line)
  gsub(/'[^']*'/, "", line)
  if (wasraw || raw) next # in a text of several lines
  if (line ~ /^\/\/go:/ || length(line) <= 140) next
  printf "%s:%d: %d columns without what is in quotes\n", FILENAME, FNR, length(line)
  bad = 1
}
END { exit bad }
