// Appends with node-postgres as its users would: strings, Buffers, objects, arrays.

const assert = require("node:assert");
const { Client } = require("pg");

async function main() {
  const client = new Client({ connectionString: process.argv[2] });
  await client.connect();
  await client.query("begin");
  const one = await client.query(
    `select * from postrider.append(event_type => $1, payload => $2::text, aggregate_type => $3,
       aggregate_id => $4, headers => $5)`,
    ["order.placed", '{"n": 1}', "order", "42", { "x-a": "1" }],
  );
  assert.strictEqual(one.rows[0].already, false);
  const again = await client.query(
    "select already from postrider.append('order.placed', $1::text, 'order', '42', event_id => $2)",
    ['{"n": 1}', one.rows[0].event_id],
  );
  assert.strictEqual(again.rows[0].already, true);
  await client.query(
    `select postrider.append('order.placed', $1::bytea, 'order', '42', content_type => 'image/x')`,
    [Buffer.from([0, 1, 255])],
  );
  const rows = await client.query(
    "select * from postrider.append_batch($1::text[], $2::bytea[], $3::text[], $4::text[])",
    [
      ["order.placed", "order.placed"],
      [Buffer.from("{}"), Buffer.from("[]")],
      ["order", "order"],
      ["1", "2"],
    ],
  );
  assert.strictEqual(rows.rows.length, 2);
  await client.query("select postrider.append_batch($1::json)", [
    JSON.stringify([
      {
        event_type: "order.placed",
        payload_json: { n: 3 },
        aggregate_type: "order",
        aggregate_id: "3",
      },
    ]),
  ]);
  await client.query("commit");
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
