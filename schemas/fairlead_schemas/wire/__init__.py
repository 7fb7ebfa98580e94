"""Messages on the bus, the events of the log, and the closed tables that explain them."""
