-- in: exact_digests (doc, digest): alive documents whose text_hash another one has; documents
-- out: exact_pairs (doc, kept, value, shown): those that are not the first of their text in order of staying
create or replace table exact_pairs as
with firsts as (
    select d.doc, first_value(d.doc) over (partition by d.text_hash, c.digest order by {staying}) as kept
    from exact_digests c
    join documents d on d.doc = c.doc
)
select doc, kept, 1e0 as value, '1.0' as shown
from firsts
where doc <> kept
order by doc
