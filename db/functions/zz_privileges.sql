-- The app's role may call the contract and read; nothing else (S20). PUBLIC may execute nothing.
revoke execute on all functions in schema tahan from public;
revoke execute on all functions in schema tahan from tahan_app;
revoke all on all tables in schema tahan from tahan_app;
grant usage on schema tahan to tahan_app;
grant select on all tables in schema tahan to tahan_app;
grant execute on function
  tahan.claim, tahan.claim_batch, tahan.confirm, tahan.confirm_batch, tahan.expire, tahan.expire_batch,
  tahan.cancel, tahan.extend, tahan.release,
  tahan.record_payment, tahan.return_sale,
  tahan.request_refund, tahan.begin_refund, tahan.finish_refund, tahan.decide_payment, tahan.store_event,
  tahan.adjust, tahan.restock, tahan.count_stock, tahan.move_stock, tahan.import_stock,
  tahan.put_product, tahan.put_bin, tahan.put_buyer_rules, tahan.add_key, tahan.revoke_key,
  tahan.put_cart_line, tahan.remove_cart_line, tahan.clear_cart, tahan.show_cart,
  tahan.after_deadline, tahan.read_checkouts, tahan.availability, tahan.show_hold, tahan.show_product, tahan.show_payment,
  tahan.show_buyer_rules, tahan.buyer_rules_set,
  tahan.product_settings, tahan.tahan_clock, tahan.instant
to tahan_app;
