# Everything a newcomer needs: `make test` on a machine with Python 3.11 or later, git and make sets itself up and runs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
AGENTS ?= .agents-cache
BROWSER ?= build/venv-browser
OPS ?= .ops-cache
GITHUB_API ?= .github-api-cache
PROJECT ?= .project-cache
WEBHOOKS ?= .webhooks-cache
API ?= build/venv-api
INSTALL ?= build/venv-install
MUTANTS ?= build/venv-mutants
KILLS ?= 500
# Of the long tiers, every n-th test.
EVERY ?= 1
EXAMPLES ?= 2000
MARKS ?= not crash and not heavy
# The rules of the source and its documents: `make check` runs them.
RULES ?= --ignore tests/project
# More at once than two cores have hands: many tests wait for a process, or for time to pass.
WORKERS ?= 3
VERSIONS ?= 3.11 3.12 3.13

.PHONY: test test-long test-walls test-agents test-api test-browser test-install test-ops test-project test-triggers test-trackers check demo demo-often docs bench crash fuzz mutants pythons scenario walk lock clean

test: $(VENV)/ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --ignore tests/walls $(RULES) -m "$(MARKS)" $(ARGS)

# Whole runs that are killed, stopped and continued, each some seconds long. `EVERY=2` runs half of them.
test-long:
	TESTS_EVERY=$(EVERY) $(MAKE) --no-print-directory test MARKS="heavy and not crash" RULES=

# The known ways out of the sandbox and past the limits, each as a test.
test-walls: $(VENV)/ready
	$(BIN)/pytest tests/walls -n 2 $(ARGS)

# The real agents, pinned, against a model on loopback: installs them, runs the matrix and prints it. Needs node and npm.
test-agents: $(VENV)/ready $(AGENTS)/ready
	HOLDFAST_AGENTS=$(abspath $(AGENTS)) $(BIN)/pytest tests/real_agents -n 2 --timeout 1200 $(ARGS)

$(AGENTS)/ready: tests/real_agents/package-lock.json tests/real_agents/install $(wildcard tests/real_agents/requirements-*.txt)
	PYTHON=$(PYTHON) tests/real_agents/install $(AGENTS)

# Metrics, alerts, dashboard and traces against a real server, with promtool and the OpenTelemetry libraries in .ops-cache.
test-ops: $(VENV)/ready $(OPS)/ready
	HOLDFAST_OPS=$(abspath $(OPS)) PYTHONPATH=$(abspath $(OPS))/otel $(BIN)/pytest tests/ops \
	  tests/server/test_metrics.py tests/server/test_logs.py tests/server/test_tracing.py -n 2 $(ARGS)

$(OPS)/ready: tests/ops/install tests/ops/requirements.txt
	PYTHON=$(abspath $(BIN))/python tests/ops/install $(OPS)

# Payloads of webhooks that others have written, and the services' own libraries for signatures, in .webhooks-cache; and the
# load of deliveries: `SECONDS=60` for a whole minute. Needs node and npm.
test-triggers: SECONDS = 5
test-triggers: $(VENV)/ready $(WEBHOOKS)/ready
	HOLDFAST_WEBHOOKS=$(abspath $(WEBHOOKS)) PYTHONPATH=$(abspath $(WEBHOOKS))/libraries HOLDFAST_LOAD_S=$(SECONDS) \
	  $(BIN)/pytest tests/webhooks tests/integrations/triggers -n 2 -s --timeout 600 $(ARGS)

$(WEBHOOKS)/ready: tests/webhooks/install tests/webhooks/package-lock.json tests/webhooks/requirements.txt
	PYTHON=$(abspath $(BIN))/python tests/webhooks/install $(WEBHOOKS)

# Requests to GitHub against its own OpenAPI description, served by prism; and the trackers' doubles. Needs node and npm.
test-trackers: $(VENV)/ready $(GITHUB_API)/ready
	HOLDFAST_GITHUB_API=$(abspath $(GITHUB_API)) $(BIN)/pytest tests/github_api tests/integrations/test_trackers.py \
	  tests/integrations/test_other_trackers.py -n 2 $(ARGS)

$(GITHUB_API)/ready: tests/github_api/install tests/github_api/package-lock.json
	tests/github_api/install $(GITHUB_API)

# A public project with its own test suite: six tasks land while the orchestrator is killed, and the time that one and two
# judged at once take. `SUITE="tests/test_commands.py"` runs fewer of its tests, and measures nothing.
test-project: $(VENV)/ready $(PROJECT)/ready
	HOLDFAST_PROJECT=$(abspath $(PROJECT)) $(if $(SUITE),HOLDFAST_SUITE="$(SUITE)") $(BIN)/pytest tests/real_project -s --timeout 3000 $(ARGS)

$(PROJECT)/ready: tests/real_project/install $(wildcard tests/real_project/*.txt)
	PYTHON=$(PYTHON) tests/real_project/install $(PROJECT)

# Requests made up by schemathesis from the OpenAPI document, against a real server. `make test-api EXAMPLES=200` makes more.
test-api: EXAMPLES = 8
test-api: $(VENV)/ready $(API)/ready
	HOLDFAST_SCHEMATHESIS=$(abspath $(API))/bin/st HOLDFAST_EXAMPLES=$(EXAMPLES) $(BIN)/pytest tests/api -s --timeout 3600 $(ARGS)

$(API)/ready: tests/api/requirements.txt
	$(PYTHON) -m venv $(API)
	$(API)/bin/pip install --quiet --quiet --disable-pip-version-check -r tests/api/requirements.txt
	touch $@

# The dashboard in a real Chromium, Debian's: installs it where there is none. Screenshots are left in build/screenshots.
test-browser: $(BROWSER)/ready
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	HOLDFAST_BROWSER=$$(command -v chromium) $(BROWSER)/bin/pytest tests/browser -n 2 --timeout 300 $(ARGS)

$(BROWSER)/ready: requirements.lock pyproject.toml tests/browser/requirements.txt
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BROWSER)/bin/pip install --quiet --quiet --disable-pip-version-check -r tests/browser/requirements.txt
	$(BROWSER)/bin/pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Wheel and sdist, built and installed in clean environments with pip, pipx and uv, on every supported Python that there is.
test-install: $(VENV)/ready $(INSTALL)/ready
	HOLDFAST_INSTALL=$(abspath $(INSTALL)) $(BIN)/pytest tests/install -s --timeout 1200 $(ARGS)

$(INSTALL)/ready: tests/install/requirements.txt
	$(PYTHON) -m venv $(INSTALL)
	$(INSTALL)/bin/pip install --quiet --quiet --disable-pip-version-check -r tests/install/requirements.txt
	touch $@

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/project -m "not heavy"

# A dozen tasks, while everything is killed. `make demo ARGS="--seed 7"` makes the same choices again.
demo: $(VENV)/ready
	@$(BIN)/holdfast demo $(ARGS)

# Again and again, with another seed each time; the second half while every core is kept busy by something else.
demo-often: COUNT = 100
demo-often: $(VENV)/ready
	@$(BIN)/python tools/demo_often.py $(COUNT)

# Writes the generated parts of docs/ anew: diagrams and tables, the commands' options, the exit codes.
docs: $(VENV)/ready
	@$(BIN)/python tools/rooms.py
	@$(BIN)/python tools/diagrams.py
	@$(BIN)/python tools/clidocs.py
	@$(BIN)/python tools/apidocs.py
	@$(BIN)/python tools/metricdocs.py
	@$(BIN)/python tests/config/test_config.py

# Ratios against a reference in the same run; writes build/bench.json. `make bench ARGS="--quick"` for a short look.
bench: $(VENV)/ready
	@$(BIN)/python -m bench $(ARGS)

# Real processes, killed with SIGKILL: writers at random moments and the whole program at seeded ones, KILLS times each;
# and every named point, with a second kill in the recovery (a sample of them where KILLS is below 200).
crash: $(VENV)/ready
	HOLDFAST_KILLS=$(KILLS) TESTS_EVERY=$(EVERY) $(BIN)/pytest -m crash -s --timeout 3600 $(ARGS)

# The property tests, with many more examples; and the API, with a twentieth of them: each is asked of every operation.
fuzz: $(VENV)/ready $(API)/ready
	HOLDFAST_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -m "fuzz and not crash" -n 2 --timeout 3600
	$(MAKE) --no-print-directory test-api EXAMPLES=$$(( $(EXAMPLES) > 160 ? $(EXAMPLES) / 20 : 8 ))

# Small changes to the code, and how many of them a test notices: the score of each module. Tries SAMPLE changes of each part
# (0: all, which takes hours), the same for the same SEED; TIME ends each part after so many seconds.
mutants: SAMPLE = 100
mutants: SEED = 1
mutants: TIME = 0
mutants: $(MUTANTS)/ready
	@$(MUTANTS)/bin/python tools/mutants.py --sample $(SAMPLE) --seed $(SEED) --time $(TIME) $(ARGS)

$(MUTANTS)/ready: requirements.lock pyproject.toml tools/mutants-requirements.txt
	$(PYTHON) -m venv $(MUTANTS)
	$(MUTANTS)/bin/pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(MUTANTS)/bin/pip install --quiet --quiet --disable-pip-version-check -r tools/mutants-requirements.txt
	$(MUTANTS)/bin/pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Records what a fixed scenario gives, to be compared with another version's: `make scenario OUT=build/before.txt`.
scenario: OUT = build/scenario.txt
scenario: HOLDFAST = $(BIN)/holdfast
scenario: $(VENV)/ready
	@mkdir -p $(dir $(OUT))
	$(BIN)/python tools/scenario.py $(OUT) $(abspath $(HOLDFAST))

# Which files and functions one task passes from its YAML file to closed, and where a reader has to turn back.
walk: $(VENV)/ready
	@$(BIN)/python tools/walk.py $(ARGS)

# The fast tests on every supported Python that this machine has.
pythons:
	@for version in $(VERSIONS); do \
	  found=$$(tools/find-python $$version) || { echo "no Python $$version here"; continue; }; \
	  $(MAKE) --no-print-directory test PYTHON=$$found VENV=build/venv-$$version MARKS="not crash and not heavy and not fuzz" || exit 1; \
	done

$(VENV)/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Pins every dependency by version and hash, for all supported Pythons; names no download address.
lock:
	$(PYTHON) -m venv build/lock-venv
	build/lock-venv/bin/pip install --quiet uv
	build/lock-venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --no-header pyproject.toml --extra dev -o requirements.lock

clean:
	rm -rf build $(VENV) .mypy_cache .ruff_cache .hypothesis
