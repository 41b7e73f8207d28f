"""The command lines that freeze.py compares."""

#: Command lines for each capture, `{}`. Those below each other may use files of those above.
OF_A_CAPTURE = """
{}
{} -v
{} -q
{} --format markdown
{} --format json -o diagnosis.json --html diagnosis.html --xlsx diagnosis.xlsx
{} --format sarif
{} --format junit
{} --format github
{} --format concise
{} --explain-ranking --sensitivity --top 2
{} --redact --format json
{} --phase decode -v
{} --window 0.02s/0.2s --format json
{} --engine python --format json
diagnosis.json -v
show {} 1
show {} 1 --format json
show {} 2 -v --format html
explain LCH101 --trace {} -v
explain SYN101 --trace {} --format json
explain KRN101 --trace {}
doctor {} -v
doctor {} --format json
doctor {} --strict --format markdown
stats {} REPORTS
stats {} REPORTS --format json
stats {} REPORTS --format csv --names base
stats {} -r trace --limit 50 --timeunit usec
facts {}
facts {} --format json
whatif {} FIXES
whatif {} --fix cuda_graphs --format json
export perfetto {} -o overlay.json
export perfetto {} --with-trace -o whole.perfetto-trace
redact {} redacted.sqlite
compare {} {}
compare {} {} -v --format json --html compared.html --xlsx compared.xlsx
compare --before {} {} --after {} --fail-on regression
compare {} {} --context --tokens 1,2
compare --frameworks a={} b={} --format markdown
checklist {} --no-input -v
checklist {} --no-input --format json --xlsx checklist.xlsx
baseline save kept {}
baseline list --format json
baseline show kept -v
{} --baseline kept --fail-on-new
review import diagnosis.xlsx --format json
review record {} --date 2026-01-02
review status --date 2026-01-03
review status --date 2026-01-03 --format json
{} --xlsx second.xlsx --review .advisor -q
"""
#: Command lines that need no capture.
ONCE = """
--version

demo
demo -v
demo --format json
rules list
rules list --format json
rules check
rules test
rules schema
rules docs
rules new OWN901 --into own
rules check own
rules test own
rules list --rules own
facts
facts --format json --match sync.
explain
capture --list
capture --list --format json
capture --troubleshoot
capture --troubleshoot --format html
capture bandwidth -- python serve.py --port 1
capture --nsys 2024.1 tail --ranks 4 --where mpi --format json
checklist --list -v
checklist --list --short --format json
checklist --no-input
whatif --list
whatif --list --format json
moe
moe 100 120 --unit tok/s
moe --learned 100 101 --perfect 120 121 --unit tok/s --format json --xlsx moe.xlsx
baseline list
review status
mcp --root nowhere
nowhere.sqlite
explian LCH101
--nonsense
--top x
--top -1 nowhere.sqlite
nowhere.sqlite --format xml
nowhere.sqlite --top
nowhere.sqlite --forma json
nowhere.sqlite -qv
nowhere.sqlite -qz
nowhere.sqlite --quiet=1
nowhere.sqlite --jobs -1
stats
stats nowhere.sqlite --names x
stats nowhere.sqlite --timeunit
stats nowhere.sqlite --limit -1
stats nowhere.sqlite --limit x
explain LCH101 x y
explain LCH101 --window 1s/2s
rules chek
review
review suppress x
capture tail --ranks 0
capture tail --where moon
whatif
whatif nowhere.sqlite --lst
compare nowhere.sqlite
compare --before a --after
compare a b --gate x
moe 1
run
run -- no-such-program
run --again
attach http://localhost:1
runs
runs --promises
runs show x
redact nowhere.sqlite out.sqlite
export perfetto nowhere.sqlite --gaps -1
"""
