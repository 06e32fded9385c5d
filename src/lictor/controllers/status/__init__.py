"""The status of policies, of global context entries and of the installation. Changes no spec."""
