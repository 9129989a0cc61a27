//! Wire types of the agent protocol and the control socket.
