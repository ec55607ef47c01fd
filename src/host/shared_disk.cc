#include "host/shared_disk.h"

#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/text.h"

namespace braid::inline host {

// As the kernel and the makers of the file systems number them: NFS, SMB, CIFS, SMB2, Ceph, Lustre,
// GPFS, BeeGFS, PanFS, AFS (two), GFS2, OCFS2; and FUSE, by which buckets and most others are
// mounted.
bool is_network_file_system(int64_t number) {
  constexpr uint32_t kNumbers[] = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x00C36400,
                                   0x0BD00BD0, 0x47504653, 0x19830326, 0xAAD7AAEA, 0x5346414F,
                                   0x6B414653, 0x01161970, 0x7461636F, 0x65735546};
  return std::find(std::begin(kNumbers), std::end(kNumbers), static_cast<uint32_t>(number)) !=
         std::end(kNumbers);
}

Result<bool> is_on_network(const std::string& path) {
  struct statfs found {};
  if (::statfs(path.c_str(), &found) != 0)
    return io_error(cat(path, ": which disk it is on: ", std::strerror(errno)));
  return is_network_file_system(static_cast<int64_t>(found.f_type));
}

}  // namespace braid::inline host
