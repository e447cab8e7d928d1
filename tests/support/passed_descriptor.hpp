// A descriptor on its way to another process, over a Unix socket (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstring>

namespace weightmap::test {

// A message of one byte, with room for a descriptor beside it.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &content;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 'x';
  iovec content{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

inline bool send_descriptor(int socket, int descriptor) {
  DescriptorMessage message;
  cmsghdr* const first = CMSG_FIRSTHDR(&message.header);
  first->cmsg_level = SOL_SOCKET;
  first->cmsg_type = SCM_RIGHTS;
  first->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(first), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &message.header, 0) == 1;
}

// -1 if there came none.
inline int receive_descriptor(int socket) {
  DescriptorMessage message;
  int descriptor = -1;
  if (::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) == 1 &&
      message.header.msg_controllen > 0)
    std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message.header)), sizeof descriptor);
  return descriptor;
}

}  // namespace weightmap::test
