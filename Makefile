# Short names for what the scripts do: each step of .ci/run, and what one runs many times a day.

.PHONY: help ci fmt words commits typos clippy doc deny test all core kubectl scenario fuzz

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

ci: ## All that must pass before a change lands
	.ci/run

fmt words commits typos clippy doc deny test:
	.ci/run $@
# For the list.
fmt: ## Format, as a check: cargo fmt --all does it
words: ## Words that the project has replaced, and long lines in pages
commits: ## Subjects of commits
typos: ## Spelling
clippy: ## Lints
doc: ## Documentation
deny: ## Licences and sources of dependencies
test: ## All tests, as the CI runs them

all: ## All tests with their long forms
	tests/run --all

# What a change is tried with. NAME is a part of a test's name, of a command of kubectl, or of a scenario.
core: ## Unit tests of the decisions: make core NAME=rollout
	cargo test --package nudge-core --lib -- $(NAME)

kubectl: ## The command kubectl nudge: make kubectl NAME=status
	cargo run --package kubectl-nudge -- $(NAME) $(ARGS)

scenario: ## One scenario on a real node: make scenario NAME=users
	tests/run --test node -- $(NAME)

fuzz: ## One fuzz target for a minute: make fuzz NAME=request
	tests/fuzz/run 60 $(NAME)
