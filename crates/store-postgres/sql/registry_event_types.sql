select t.event_type, t.schema_version, t.content_type, t.json_schema,
    exists (
        select from {schema}.event_types_current c where c.event_type_id = t.event_type_id
    ) as current
from {schema}.event_types t
order by t.event_type, t.schema_version, t.event_type_id
