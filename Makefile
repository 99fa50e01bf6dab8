# make demo: the main job on the embedded corpus.  make test: the tests.  make check: format, lint and types.
PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# What the library needs, and what only those who work on it need (compilers run, browsers' drivers come).
LIBRARY := .venv/.installed
READY := .venv/.ready

.PHONY: demo test check format models results docs release clean
.DEFAULT_GOAL := demo

$(LIBRARY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing tslm into .venv (a minute or two the first time)"
	@$(INSTALL) -e .
	@touch $@

$(READY): $(LIBRARY)
	@echo "installing what the tests need (a few minutes the first time)"
	@$(INSTALL) -e ".[dev]"
	@touch $@

demo: $(LIBRARY)
	@$(BIN)/tslm demo

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# The models that come with the package: minutes.
models: $(READY)
	@$(BIN)/python tools/pretrained.py runs/pretrained

results: $(READY)
	@$(BIN)/python tools/results.py results .

# The site, in docs/_build/html: the notebooks are run, warnings are errors, the network is not asked.
docs: $(READY)
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees docs docs/_build/html

# Wheel and source distribution, in dist/.
release: $(READY)
	@$(BIN)/python -m hatchling build -d dist

clean:
	rm -rf .venv demo dist .pytest_cache .ruff_cache
