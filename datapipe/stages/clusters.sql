-- in: exact_drops, near_drops (doc, kept)
-- out: clusters (doc, cluster): all whose evidence leads to a kept document, and that document
-- A document that one stage kept may leave at the other; each runs at most once, so evidence takes two steps at most.
create or replace table clusters as
with steps as (
    select doc, kept from exact_drops
    union all
    select doc, kept from near_drops
),
ends as (
    select s.doc, coalesce(t.kept, s.kept) as cluster
    from steps s
    left join steps t on t.doc = s.kept
)
select doc, cluster from ends
union all
select distinct cluster, cluster from ends
order by 1
