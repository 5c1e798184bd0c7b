-- in: documents, ledger; $place: the stage, $most: languages of a source that are counted each for itself
-- {judged}: SQL over documents for those that the stage judged, {here}: over those that reached it

-- name: languages
-- the lang of a source as it is counted; the ones behind the most common `$most` are `*` together
create or replace temp table collateral_languages as
select source, lang,
       case when lang is null then null
            when row_number() over (partition by source order by lang is null, count(*) desc, lang) <= $most then lang
            else '*' end as shown
from documents
where {here}
group by source, lang

-- name: judged
select d.source, c.shown as lang, count(*) as documents, sum(d.bytes)::bigint as bytes
from (select * from documents where {here} and ({judged})) d
join collateral_languages c on c.source = d.source and c.lang is not distinct from d.lang
group by all
order by d.source, c.shown nulls first

-- name: collateral
with rules as (
    select doc, count(*) as broken from ledger where place = $place group by doc
)
select l.rule, d.source, c.shown as lang,
       count(*) as documents, sum(d.bytes)::bigint as bytes,
       count(*) filter (r.broken = 1) as alone,
       coalesce(sum(d.bytes) filter (r.broken = 1), 0)::bigint as alone_bytes,
       count(*) filter (l.decides) as decides,
       coalesce(sum(d.bytes) filter (l.decides), 0)::bigint as decides_bytes
from ledger l
join rules r using (doc)
join documents d using (doc)
join collateral_languages c on c.source = d.source and c.lang is not distinct from d.lang
where l.place = $place
group by all
order by l.rule, d.source, c.shown nulls first
