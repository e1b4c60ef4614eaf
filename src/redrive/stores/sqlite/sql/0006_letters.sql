-- Dead letters are exported in the order they were published in, page by page.
CREATE INDEX redrive_letters_in_order ON redrive_deliveries (id) WHERE status = 3;
