#!/usr/bin/env bash
# Sets up .venv and trains on handwritten digits:  bash tools/demo.sh [options of tools.train]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
exec "$python" -m tools.train --config=configs/digits.py --workdir=runs/digits "$@"
