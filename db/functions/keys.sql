-- API keys, stored as hashes. Adding one that is known answers with it, so that a start can repeat.
create or replace function tahan.add_key(p_role text, p_name text, p_hash bytea) returns jsonb
language sql volatile security definer set search_path = tahan, pg_temp as $$
  with added as (
    insert into api_keys (role, name, hash) values (p_role, p_name, p_hash)
    on conflict on constraint api_keys_hash_once do update set name = excluded.name
    returning id, role, name
  )
  select jsonb_build_object('id', a.id, 'role', a.role, 'name', a.name) from added a
$$;

create or replace function tahan.revoke_key(p_id uuid) returns boolean
language plpgsql volatile security definer set search_path = tahan, pg_temp as $$
begin
  update api_keys k set revoked_at = clock_timestamp() where k.id = p_id and k.revoked_at is null;
  return found;
end
$$;
