//! Who we are: certificates, chosen by server name.
