"""Appends events in transactions of its own, with psycopg 3.

    python append.py postgresql://user@host/database

The database has the outbox (`postrider migrate`, `postrider apply`) with the event type
`order.placed` version `1`. Prints one JSON object that says what happened.
"""

import json
import sys
import uuid
from contextlib import contextmanager

import psycopg

APPEND = """
    select event_id, position, already
    from postrider.append(
        event_type => 'order.placed',
        aggregate_type => 'order',
        aggregate_id => %(order)s,
        payload => %(payload)s,
        event_id => %(event_id)s
    )
"""


def order_payload(order: str, total: int) -> str:
    """The bytes that consumers get: stored and sent exactly as they are here."""
    return json.dumps({"id": order, "total": total})


def place(connection: psycopg.Connection, order: str, total: int, event_id: uuid.UUID) -> dict:
    """Changes the business data and says so. Both commit, or neither does."""
    connection.execute("insert into orders (id, total) values (%s, %s)", (order, total))
    return append(connection, order, order_payload(order, total), event_id)


def append(connection: psycopg.Connection, order: str, payload: str, event_id: uuid.UUID) -> dict:
    row = connection.execute(
        APPEND, {"order": order, "payload": payload, "event_id": event_id}
    ).fetchone()
    assert row is not None
    return {"event_id": str(row[0]), "position": row[1], "already": row[2]}


@contextmanager
def expected_error():
    """Collects the error that the block raises, as an application would log it."""
    error: dict = {}
    try:
        yield error
    except psycopg.Error as raised:
        # A class of its own: PR and a number. The detail says what it means, the hint what to do.
        error["sqlstate"] = raised.sqlstate
        error["message"] = str(raised.diag.message_primary)
        error["detail"] = raised.diag.message_detail
        error["hint"] = raised.diag.message_hint


def main(url: str) -> dict:
    report: dict = {}
    event_id = uuid.uuid4()
    with psycopg.connect(url) as connection:
        with connection.transaction():
            report["committed"] = place(connection, "py-1", 10, event_id)

        with connection.transaction():
            report["rolled_back"] = place(connection, "py-2", 20, uuid.uuid4())
            raise psycopg.Rollback()

        # A retry after "did my commit arrive?": the same event again changes nothing.
        with connection.transaction():
            report["again"] = append(connection, "py-1", order_payload("py-1", 10), event_id)

        with expected_error() as report["conflict"], connection.transaction():
            append(connection, "py-1", order_payload("py-1", 11), event_id)

        with expected_error() as report["unknown_type"], connection.transaction():
            connection.execute(
                "select postrider.append('order.eaten', '{}', 'order', 'py-1', '1')"
            )

        with expected_error() as report["time_without_zone"], connection.transaction():
            connection.execute(
                """select postrider.append('order.placed', '{"id":"py-3"}', 'order', 'py-3',
                    occurred_at => '2026-01-01T12:00:00')"""
            )

        # A NUL that JSON escapes is the payload's own business, and stays as it is.
        with connection.transaction():
            report["nul_in_payload"] = append(
                connection, "py-4", '{"id":"py-4\\u0000"}', uuid.uuid4()
            )

        # Text of the envelope cannot hold it. psycopg already refuses to send such text.
        try:
            with connection.transaction():
                append(connection, "py\0-5", order_payload("py-5", 1), uuid.uuid4())
        except (psycopg.Error, ValueError) as refused:
            report["nul_in_text"] = str(refused)

        # Many events in one round trip: arrays in parallel, all or nothing, in order.
        with connection.transaction():
            orders = [f"py-batch-{index}" for index in range(3)]
            rows = connection.execute(
                """select event_id, position, already from postrider.append_batch(
                    event_types => %s, payloads => %s, aggregate_types => %s, aggregate_ids => %s)""",
                (
                    ["order.placed"] * 3,
                    [order_payload(order, 1).encode() for order in orders],
                    ["order"] * 3,
                    orders,
                ),
            ).fetchall()
            report["batch"] = [
                {"event_id": str(row[0]), "position": row[1], "already": row[2]} for row in rows
            ]
    return report


if __name__ == "__main__":
    json.dump(main(sys.argv[1]), sys.stdout)
