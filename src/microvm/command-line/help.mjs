import { columns } from './command-help.mjs'
import { MACHINE_COMMANDS } from './commands.mjs'

/** `./microvm --help`. Plain JavaScript: shown by whatever Node the machine has, before anything is set up. */
export const MICROVM_HELP = `microvm: run a container in a microVM

Usage:
  ./microvm run [OPTIONS] [CMD [ARG…]]    run CMD in a container in a fresh microVM
  ./microvm COMMAND --help                options of a command
  ./microvm completion bash|zsh|fish      print the completion of a shell: eval "$(./microvm completion bash)"
  ./microvm --help, --version

Machines that a daemon keeps:
${columns(MACHINE_COMMANDS.map(({ name, summary }) => [name, summary])).join('\n')}

Examples:
  ./microvm run                                  a short demonstration with timings
  ./microvm run sh -c 'echo out; exit 7'         its streams and its exit status are yours
  ./microvm run -it sh                           an interactive shell
  tar c . | ./microvm run sh -c 'tar t | wc -l'  stdin is piped through
  ./microvm run --rootfs ./image-layout          a root filesystem of your own
  ./agent-ctl ps                                 look into the guest while it runs

Needs Debian 12 or newer on x86-64, root, and Node.js 20 or newer with npm. The first run installs what is missing
(Debian packages, npm packages) and builds the guest image below build/; later runs use what is there.
`

/** `./microvm run --help`. */
export const RUN_HELP = `Usage: ./microvm run [OPTIONS] [CMD [ARG…]]

Boots a microVM, runs CMD in a container inside it, powers the microVM off and exits with CMD's status.
stdout carries CMD's stdout and nothing else; progress, timings and the guest's console go to stderr.
Without CMD the root filesystem's own command runs (--rootfs), or a short demonstration.

stdin is passed on with its end when it is a pipe or a file; with a terminal on either side only with -i.

The guest has no network without --metadata. There are no volumes (-v) yet: files come in with --rootfs or by stdin, or
with ./agent-ctl cp while CMD runs.

The container:
  -i, --interactive      pass a terminal's input on
  -t, --tty              give CMD a terminal; with -i (-it) keys go to it raw and its size follows yours
  --rootfs PATH          root filesystem: a directory, a tar archive (also compressed), or an OCI image layout
                         (directory or tar; PATH:TAG chooses one of several images); default: busybox
  -e, --env NAME=VALUE   add to the environment (repeatable)
  -w, --workdir DIR      working directory
  -u, --user USER[:GROUP]  numbers, or names of the root's /etc/passwd and /etc/group

The microVM:
  --name NAME            for ./agent-ctl -a microvm://NAME (default: a short word; --verbose shows it). Without -a the
                         one machine that runs is taken
  --daemon               make the microVM in the daemon, which ends it with this command; without QEMU's user network
  --warm                 take a clone of the daemon's template of such a microVM, which a first run waits for; without
                         --metadata and --machine microvm
  --socket PATH          the daemon's socket (default: MICROVM_SOCKET, else admin.sock in the default state folder)
  --memory MIB           memory in MiB (default 512, at least 128; with --form initrd 1024 and 448)
  --cpus N               virtual CPUs (default 2, at most 64)
  --machine TYPE         q35 (default), pc, or microvm (virtio-mmio, no PCI)
  --kernel SUITE|FILE    Debian's kernel of trixie (6.12, default) or bookworm (6.1), or a bzImage with the drivers of
                         the root built in, which boots a disk without an initrd (a FILE has a slash in its name)
  --form FORM            the guest's own root: disk (default), partitioned (a disk with a partition table), or
                         initrd (all of it in memory)
  --image FILE           the guest's own root from a raw ext4 or erofs image FILE instead, or from the first partition
                         of FILE (it stays unchanged)
  --root-device DEVICE   how the guest sees its root: virtio-blk (default: /dev/vda), or nvdimm (/dev/pmem0, read
                         without a copy; FILE has to be a partitioned image of this project's layout)
  --console DEVICE       where the guest's console is: serial (default: ttyS0) or virtio (hvc0)
  --metadata FILE        tell the guest its name and addresses (YAML or JSON: name, network_config), and give it a
                         network card on QEMU's user network whose other end is peer_ip
  --append TEXT          add to the kernel command line (repeatable)

What is shown, on stderr:
  --timings              a table of timings at the end (always shown by the demonstration)
  --json                 the timings as one line of JSON instead
  --verbose              progress and the guest's console as it is written
  -h, --help             this text

Exit status: that of CMD (128 + N when signal N ended it); 2 for a mistake in the command line or a machine that cannot
run this; 125 when the microVM or the container could not be started, 126 when CMD cannot be executed, 127 when there is
no such program; 128 + N when signal N ended the run itself.

Without -t the first SIGINT, SIGTERM or SIGHUP goes to CMD and the second ends the microVM. With -it, Ctrl-C reaches CMD
as a key, and a signal ends the microVM.

Environment:
  MICROVM_ACCEL=kvm|tcg             hardware virtualisation or emulation (default: kvm when the CPU has it)
  MICROVM_VSOCK=vhost|vhost-user|tcp  how the guest is reached (default: the first of them that works here)
  MICROVM_REGISTRY=FOLDER           where machines tell agent-ctl their address (default: /run/microvm)
  TRACEPARENT=CONTEXT               the trace (W3C) to which what a daemon does for this command belongs
`
