-- The changes of one product's settings and of its bins' are read by what they are about, newest first.
create index setting_changes_by_what on tahan.setting_changes (what, id desc);
