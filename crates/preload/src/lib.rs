//! libunconvoy.so.
