-- in: url_keys (doc, kind, key): what a document's URL is looked up by;  url_rules (rank, kind, list, rule);
--     url_entries (list, key);  url_words (doc, rank, rule, value, evidence): what the rules on words found
-- out: url_drops: every rule that takes a document; the first in order of rank decides
create or replace table url_drops as
with listed as (
    select k.doc, min(r.rank) as rank, r.rule, null::double as value,
        '{"entry":' || to_json(min(k.key)) || '}' as evidence
    from url_keys k
    join url_rules r using (kind)
    join url_entries e on e.list = r.list and e.key = k.key
    group by k.doc, r.rule
    union all
    select doc, min(rank), rule, any_value(value), min(evidence) from url_words group by doc, rule
)
select doc, rule, value, evidence, row_number() over (partition by doc order by rank) = 1 as decides
from listed
order by doc, rank
