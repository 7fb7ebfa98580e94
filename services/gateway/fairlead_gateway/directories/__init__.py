"""Directories of people that others keep: SCIM and LDAP. They admit and suspend people, and give groups their members."""
