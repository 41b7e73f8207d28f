"""What a reader had to drop or repair, counted while it reads."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.model.capture import LedgerKind, LedgerRow


class Ledger(dict[tuple[LedgerKind, str, str], tuple[int, int]]):
    """Rows by kind, what is wrong with them, and table: how many, of how many. Columns of a table may
    be read one after the other: the largest count stands."""

    def note(self, kind: LedgerKind, what: str, table: str, count: int, rows: int) -> None:
        if count > self.get((kind, what, table), (0, 0))[0]:
            self[kind, what, table] = count, max(rows, count)

    def rows(self) -> tuple[LedgerRow, ...]:
        return tuple(LedgerRow.of(*key, *numbers) for key, numbers in self.items())

    def warnings(self, told: Iterable[str]) -> tuple[str, ...]:
        """What a report must say beside `told`; a rule speaks of rows that cannot be true."""
        known = tuple(told)
        new = (r for r in self.rows() if not any(text.startswith(r.what) for text in known))
        return (*known, *(str(r) for r in new if r.severity == "warning" and r.kind != "doubted"))
