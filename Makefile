# Everything works from a bare clone: python3 (3.11 to 3.13) and make suffice. uv is fetched when it is not there,
# and Spark falls back to the Java runtime that comes as a Python package.

PYTHON ?= python3
UV := $(or $(shell command -v uv 2>/dev/null),.tools/bin/uv)
BIN := .venv/bin
READY := .venv/.ready
# On a machine that does nothing else. Half an hour of processor time; what takes more belongs into the soak.
TEST_TAKES := 17 to 27 minutes on two cores
WARM := .venv/.warm

# Where Python was told to write no bytecode, each process of the tests would compile every test file again, asserts
# rewritten: half of what collecting them takes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo check test postgres install-postgres mosquitto install-mosquitto chromium install-chromium hosts mqtt-plugin softhsm install-softhsm kafka install-maven lint docs bench soak fuzz audit clean
.DEFAULT_GOAL := help

help:
	@echo "make setup   .venv with everything in it, .venv/bin/sealcast among it"
	@echo "make demo    a day of market data in miniature, sealed, through Spark, opened"
	@echo "make check   lint and the light tests: less than three minutes on two cores"
	@echo "make test    lint and all tests but the long ones: $(TEST_TAKES)"
	@echo "make lint    style, types and import rules"
	@echo "make docs    the documentation as a site, with every link checked: build/docs/site/index.html"
	@echo "make bench   measurements, each beside its reference"
	@echo "make soak    the long tests: many kills, many events; hours"
	@echo "make fuzz    every parser under coverage guidance, FUZZ_SECONDS=30 each"
	@echo "make audit   known advisories against what the lock file names"
	@echo "make kafka   the jars of the Kafka that tests and measurements start"
	@echo "make mqtt-plugin   the plug-in for mosquitto: mqtt-plugin/build/sealcast_mosquitto.so"
	@echo "make clean   remove what the others made"

setup: $(READY)

# The stamp makes repeated calls free; it is older than the lock file whenever a dependency changed. Everything is
# compiled here, once: where Python may not write its bytecode down, each of the many processes of the tests, and each
# command, would compile numpy, SQLAlchemy and us again, which takes more than twice as long as the command itself.
$(READY): pyproject.toml uv.lock $(if $(filter .tools/%,$(UV)),$(UV))
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "sealcast needs Python 3.11 to 3.13, and $(PYTHON) is %d.%d: make PYTHON=/path/to/python3.13 ..." % v)'
	@UV_PYTHON_DOWNLOADS=never $(UV) sync --frozen --all-extras --compile-bytecode --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@$(BIN)/python -m compileall -q src
	@touch $@

# By hash, like everything in uv.lock.
.tools/bin/uv: uv.requirements.txt
	@$(PYTHON) -m venv .tools
	@.tools/bin/pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@touch $@

# The last line is the next one to type; README.md shows the same one, and a test compares them. DEMO is for options:
# the tests make a smaller day of it.
demo: $(READY)
	@$(BIN)/sealcast demo $(DEMO)
	@echo
	@echo "Next, in this directory, type:"
	@echo ". .venv/bin/activate && sealcast init market"

# The linters use one core, and the tests take what is left of the others.
check: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint light

# Light tests start neither Spark nor PostgreSQL, and their files take seconds: tests/conftest.py marks the others.
.PHONY: light
light: $(READY)
	@$(BIN)/python -m compileall -q src
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not soak and not heavy"

# Realms sync every file that they write. Here it is the tests' realms, which nobody misses after a power failure: in
# memory, where there is room and programs may run, a sync costs nothing; on a disk it takes milliseconds.
IN_MEMORY := $(shell [ -w /dev/shm ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts \
  && [ "$$(df --output=avail /dev/shm | tail -n 1)" -gt 6000000 ] && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)

# One process more than cores, because many tests wait. Four took as long as three.
test: say-how-long everything
	@$(BIN)/python -m compileall -q src
	@$(MAKE) --no-print-directory -j 3 lint $(WARM) rewritten
	@$(IN_MEMORY) $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

# The tests start Spark dozens of times. A small demo first lets Java keep the classes that it loads
# (src/sealcast/pipeline/class_archive.py), which saves five seconds of processor time at each start.
$(WARM): $(READY)
	@$(BIN)/sealcast demo --events 1000 --desks 20 --json >/dev/null
	@touch $@

# pytest rewrites the asserts of a file and keeps the result. Where it has not, as in a fresh clone, each of the processes
# that share the tests would do that for every file at the same time: ten seconds of each.
.PHONY: rewritten
rewritten: $(READY)
	@$(BIN)/pytest --collect-only -qq >/dev/null

# What the tests need beside the Python environment. One after the other: a system installs one package at a time.
SERVERS := postgres mosquitto softhsm kafka chromium hosts
# The environment meanwhile: the one waits for the network most of the time, and the other compiles.
.PHONY: everything
everything:
	@$(MAKE) -s -j 1 $(SERVERS) & servers=$$!; code=0; \
	$(MAKE) -s setup || code=$$?; wait $$servers || code=$$?; exit $$code

.PHONY: say-how-long
say-how-long:
	@echo "This takes $(TEST_TAKES). In a hurry: make check"

# The lists of packages, once for all that is installed here.
APT_UPDATE := { [ -n "$$(find .tools/apt-updated -mmin -60 2>/dev/null)" ] \
  || { apt-get -qq update && mkdir -p .tools && touch .tools/apt-updated; }; }

# The tests start a PostgreSQL of their own. Its programs come from the system's packages; free when they are there.
postgres:
	@command -v pg_ctl >/dev/null || ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 || $(MAKE) --no-print-directory install-postgres

install-postgres:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	  echo "the tests need PostgreSQL: apt-get install --no-install-recommends postgresql (as root), or its pg_ctl on PATH" >&2; exit 1; }
	@$(APT_UPDATE) && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends postgresql >/dev/null

# The tests start a mosquitto of their own, with the plug-in of mqtt-plugin/ in it: the server, and the headers of what
# the plug-in uses.
MOSQUITTO_PACKAGES := mosquitto mosquitto-dev libmosquitto-dev libsecp256k1-dev libssl-dev
MOSQUITTO_FILES := $(addprefix /usr/include/,mosquitto_plugin.h mosquitto.h secp256k1.h openssl/evp.h)

mosquitto:
	@{ command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ]; } && ls $(MOSQUITTO_FILES) >/dev/null 2>&1 \
	  || $(MAKE) --no-print-directory install-mosquitto

install-mosquitto:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	  echo "this needs mosquitto: apt-get install --no-install-recommends $(MOSQUITTO_PACKAGES) (as root)" >&2; exit 1; }
	@$(APT_UPDATE) && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends $(MOSQUITTO_PACKAGES) >/dev/null

# The tests keep an unlock key in a PKCS#11 token: SoftHSM's, which is one in software.
softhsm:
	@command -v softhsm2-util >/dev/null || $(MAKE) --no-print-directory install-softhsm

install-softhsm:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	  echo "the tests need SoftHSM: apt-get install --no-install-recommends softhsm2 (as root)" >&2; exit 1; }
	@$(APT_UPDATE) && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends softhsm2 >/dev/null

# The tests and the measurements start a Kafka of their own. Maven fetches its jars by version, and each has to have the
# digest that is written down here.
kafka: .tools/kafka/.ready

.tools/kafka/.ready: tests/log/kafka/pom.xml tests/log/kafka/jars.sha256
	@command -v mvn >/dev/null || $(MAKE) --no-print-directory install-maven
	@rm -rf .tools/kafka/jars
	@mvn -q -B -f tests/log/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$(CURDIR)/.tools/kafka/jars"
	@cd .tools/kafka/jars && sha256sum --quiet --strict -c "$(CURDIR)/tests/log/kafka/jars.sha256"
	@touch $@

install-maven:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	  echo "this needs Maven: apt-get install --no-install-recommends maven (as root), or mvn on PATH" >&2; exit 1; }
	@$(APT_UPDATE) && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends maven >/dev/null

# The tests of the console look at its pages in a real browser.
chromium:
	@command -v chromium >/dev/null || $(MAKE) --no-print-directory install-chromium

install-chromium:
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	  echo "the tests need a browser: apt-get install --no-install-recommends chromium (as root)" >&2; exit 1; }
	@$(APT_UPDATE) && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends chromium >/dev/null

# Tests on hosts of their own (tests/network) need root, and `ip` to make network namespaces. Who is not root cannot run
# them in any case: they are left out, and the last line of the tests says how many.
hosts:
	@command -v ip >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { $(APT_UPDATE) \
	  && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends iproute2 >/dev/null; }

mqtt-plugin: mosquitto
	@$(MAKE) --no-print-directory -C mqtt-plugin

lint: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# In an environment of its own, without Spark: docs/adr/0053-docs-site.md.
docs: $(if $(filter .tools/%,$(UV)),$(UV))
	@UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=.venv-docs $(UV) sync --frozen --no-default-groups --group docs --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@.venv-docs/bin/python docs/site/build.py build/docs

bench: $(READY) mqtt-plugin kafka
	@$(BIN)/sealcast bench

soak: everything
	@$(BIN)/pytest -m soak --timeout 3600

# atheris is not part of `make setup`: it is large, and has wheels for Linux on x86-64 only.
FUZZ_SECONDS ?= 30
fuzz: $(READY)
	@UV_PYTHON_DOWNLOADS=never $(UV) sync --frozen --all-extras --group fuzz --quiet
	@$(BIN)/python -m tests.fuzz.run $(FUZZ_SECONDS)

# Where PyPI can be asked; otherwise it says so, and is no success.
audit: $(READY)
	@$(BIN)/python -m tests.advisories

clean:
	rm -rf .fuzz build mqtt-plugin/build .venv .venv-docs .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
