"""Appends with psycopg as its users would: named arguments, str, bytes, Json, lists."""

import sys

import psycopg
from psycopg.types.json import Json

with psycopg.connect(sys.argv[1]) as connection:
    one = connection.execute(
        """select * from postrider.append(
            event_type => %(event_type)s, payload => %(payload)s, aggregate_type => %(type)s,
            aggregate_id => %(id)s, headers => %(headers)s)""",
        {
            "event_type": "order.placed",
            "payload": '{"n": 1}',
            "type": "order",
            "id": "42",
            "headers": Json({"x-a": "1"}),
        },
    ).fetchone()
    assert one is not None and one[2] is False, one
    again = connection.execute(
        """select already from postrider.append(
            'order.placed', %s, 'order', '42', event_id => %s, headers => %s)""",
        ('{"n": 1}', one[0], None),
    ).fetchone()
    assert again == (True,), again
    connection.execute(
        """select postrider.append(event_type => 'order.placed', payload => %s,
            aggregate_type => 'order', aggregate_id => '42', content_type => 'image/x')""",
        (bytes([0, 1, 255]),),
    )
    rows = connection.execute(
        """select * from postrider.append_batch(
            event_types => %s, payloads => %s, aggregate_types => %s, aggregate_ids => %s)""",
        (["order.placed"] * 2, [b"{}", b"[]"], ["order"] * 2, ["1", "2"]),
    ).fetchall()
    assert len(rows) == 2, rows
    connection.execute(
        "select postrider.append_batch(%s)",
        (
            Json(
                [
                    {
                        "event_type": "order.placed",
                        "payload_json": {"n": 3},
                        "aggregate_type": "order",
                        "aggregate_id": "3",
                    }
                ]
            ),
        ),
    )
