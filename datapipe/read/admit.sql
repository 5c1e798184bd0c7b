-- What is a document of the build: names for equal records, ranks, and the captures that a snapshot leaves out.
-- Statements are run one by one, by the name in the line above each.

-- name: tables
-- out: incoming (a row per stored document), set_aside (own of what select and snapshot cut)
create or replace temp table incoming (
    part integer, row integer, source varchar, own uuid, key varchar, instant bigint, version_order varchar,
    "group" varchar, snapshot varchar, lang varchar, text_hash uuid, bytes bigint
);
create or replace temp table set_aside (number integer, own uuid);

-- name: take
-- in: narrow.parquet of a part ($path), its number and source
insert into incoming
select $part, file_row_number, $source, own::uuid, key, instant, version_order, "group", snapshot, lang,
    text_hash::uuid, bytes
from read_parquet($path, file_row_number = true)
order by file_row_number;

-- name: take_cut
-- in: cut.parquet of a unit ($path) and the unit's number
insert into set_aside select $number, own::uuid from read_parquet($path) order by 1, 2;

-- name: repeats
-- out: repeats (own): names that more than one record claims;  claims: to be filled with those records
create or replace temp table repeats as
select own from (select own from incoming union all select own from set_aside)
group by own having count(*) > 1 order by own;
create or replace temp table claims (own uuid, fields varchar, part integer, row integer);

-- name: repeated_parts
select distinct part from incoming semi join repeats using (own) order by part;

-- name: repeated_cuts
select distinct number from set_aside semi join repeats using (own) order by number;

-- name: claim
insert into claims
select own::uuid, fields, $part, file_row_number from read_parquet($path, file_row_number = true)
where own::uuid in (select own from repeats) order by file_row_number;

-- name: renamed
-- out: the stored documents that are not the first of their name, and their n; equal fields: interchangeable
create or replace temp table renamed as
select part, row, n from (
    select part, row, row_number() over (partition by own order by fields, part, row) - 1 as n from claims
)
where n > 0 and part >= 0 order by part, row;

-- name: named
-- in: new_ids (part, row, doc_id) of the renamed;  out: named, incoming with its doc_id
create or replace temp table named as
select incoming.*, coalesce(new_ids.doc_id::uuid, incoming.own) as doc_id
from incoming left join new_ids using (part, row) order by part, row;

-- name: sampled
-- in: left_out (part, row): documents that a sample by doc_id cuts;  numbers (part, new_part) of the parts that remain
-- out: named, without them and with the rows and parts that their new units have
create or replace temp table named as
select * replace (numbers.new_part as part, (row_number() over (partition by part order by row) - 1)::integer as row)
from (select * from named anti join left_out using (part, row)) named join numbers using (part)
order by part, row;

-- name: documents
-- in: named; priorities (source, priority);  out: documents, as documents.py says
insert into documents
select row_number() over (order by doc_id) - 1, doc_id, source, snapshot,
    coalesce("group", key, hex32(text_hash)), lang, text_hash, bytes, instant, priority, part, row,
    'train', null, null
from named join priorities using (source)
order by doc_id;

-- name: captures
-- in: rules (source, as_of, keep): sources with a snapshot rule; as_of in microseconds or null, keep null without a key
-- out: captures: every document of them, late or not, and its place among the captures of its key
-- a document that the edits left without a text ($emptied is its hash) is nobody's capture: it makes no other leave
create or replace temp table captures as
with mine as (
    select doc, named.doc_id, source, key, named.instant, version_order, named.text_hash, keep,
        coalesce(named.instant > as_of, false) as late
    from named join rules using (source) join documents using (part, row, source)
    where named.text_hash <> $emptied::uuid
)
select *, case when not late and key is not null and keep is not null then row_number() over (
    partition by source, late, key
    order by instant is null,
        case when keep = 'newest' then -instant else instant end,
        case when keep = 'newest' then version_order end desc nulls last,
        case when keep = 'oldest' then version_order end asc nulls first,
        case when keep = 'newest' then text_hash end desc nulls last,
        case when keep = 'oldest' then text_hash end asc nulls last,
        doc_id
) end as place
from mine order by doc;

-- name: drops
-- out: admit_drops (doc, rule, value, evidence, decides)
create or replace temp table admit_drops as
select c.doc,
    case when c.late then 'after as_of'
        when c.instant is null and k.instant is not null then 'no date'
        when c.keep = 'newest' then 'older capture' else 'newer capture' end as rule,
    null::double as value,
    case when not c.late then '{"kept":"' || hex32(k.doc_id) || '"}' end as evidence,
    true as decides
from captures c left join captures k on k.source = c.source and k.key = c.key and k.place = 1
where c.late or c.place > 1
union all
select doc, 'no text after edits', null, null, true from documents where text_hash = $emptied::uuid
order by doc;
