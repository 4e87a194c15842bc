/** @typedef {{ name: string, why: string }} DebianPackage */

/**
 * The packages that build the agent and its image and run a microVM.
 * @type {readonly DebianPackage[]}
 */
export const RUN_PACKAGES = [
  { name: 'qemu-system-x86', why: 'runs the microVM' },
  { name: 'busybox-static', why: "the default container's root filesystem" },
  { name: 'binutils', why: 'strips the pinned Node for the guest image' },
  { name: 'gcc', why: 'builds vminit and the addon' },
  { name: 'libc6-dev', why: 'builds vminit and the addon' },
  { name: 'debian-archive-keyring', why: 'checks packages fetched for the guest' },
  { name: 'e2fsprogs', why: 'packs container roots (mke2fs -d)' },
  { name: 'erofs-utils', why: "packs the guest's root filesystem" },
  { name: 'kmod', why: "computes the order of the guest's modules" },
  { name: 'umoci', why: 'unpacks OCI image layouts' },
  { name: 'xz-utils', why: 'unpacks kernel modules' },
  { name: 'zstd', why: 'compresses the initrd and the distribution archive' },
]

/** @type {readonly DebianPackage[]} */
export const TEST_PACKAGES = [
  { name: 'patchelf', why: "runs the image's runc and crun on the host" },
  { name: 'gnupg', why: 'signs the mirror of the tests' },
  { name: 'iproute2', why: 'network namespaces of the tests' },
  { name: 'iptables', why: 'packet filters on the host' },
  { name: 'nftables', why: 'packet filters of taps' },
  { name: 'qemu-utils', why: 'makes the encrypted disks of the tests' },
  { name: 'clang-format', why: 'checks the format of the C files' },
  { name: 'debootstrap', why: "a plain Debian root, as an image that is not the project's" },
  { name: 'cryptsetup-bin', why: 'makes the hash trees that dm-verity tests check' },
  { name: 'fdisk', why: 'makes the partition tables of storage tests' },
  { name: 'ovmf', why: 'boots disks by UEFI' },
  { name: 'xfsprogs', why: 'makes the file systems that volume tests grow' },
  { name: 'golang-go', why: 'a foreign ttRPC client' },
  { name: 'golang-github-containerd-ttrpc-dev', why: 'a foreign ttRPC client' },
  { name: 'gogoprotobuf', why: 'generates the messages of the foreign ttRPC client' },
  { name: 'protobuf-compiler', why: 'generates the messages of the foreign clients' },
  { name: 'python3-grpcio', why: 'a foreign gRPC client; also drives terminals' },
  { name: 'python3-protobuf', why: 'a foreign gRPC client' },
  { name: 'python3-prometheus-client', why: 'parses the metrics, as promtool does' },
]
