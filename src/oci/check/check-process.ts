import type { LinuxCapabilities, POSIXRlimit, Process, User } from '../../gen/oci.ts'
import { checkOneOf, checkText, invalidField } from './check-field.ts'

/** The capabilities of the kernel; the last one was added in 5.9 (man 7 capabilities). */
const CAPABILITIES = [
  ...['CHOWN', 'DAC_OVERRIDE', 'DAC_READ_SEARCH', 'FOWNER', 'FSETID', 'KILL', 'SETGID', 'SETUID', 'SETPCAP'],
  ...[
    'LINUX_IMMUTABLE',
    'NET_BIND_SERVICE',
    'NET_BROADCAST',
    'NET_ADMIN',
    'NET_RAW',
    'IPC_LOCK',
    'IPC_OWNER',
  ],
  ...[
    'SYS_MODULE',
    'SYS_RAWIO',
    'SYS_CHROOT',
    'SYS_PTRACE',
    'SYS_PACCT',
    'SYS_ADMIN',
    'SYS_BOOT',
    'SYS_NICE',
  ],
  ...[
    'SYS_RESOURCE',
    'SYS_TIME',
    'SYS_TTY_CONFIG',
    'MKNOD',
    'LEASE',
    'AUDIT_WRITE',
    'AUDIT_CONTROL',
    'SETFCAP',
  ],
  ...['MAC_OVERRIDE', 'MAC_ADMIN', 'SYSLOG', 'WAKE_ALARM', 'BLOCK_SUSPEND', 'AUDIT_READ', 'PERFMON', 'BPF'],
  'CHECKPOINT_RESTORE',
].map((name) => `CAP_${name}`)

/** The resource limits of the kernel (man 2 getrlimit). */
export const RLIMITS = [
  ...['AS', 'CORE', 'CPU', 'DATA', 'FSIZE', 'LOCKS', 'MEMLOCK', 'MSGQUEUE', 'NICE', 'NOFILE', 'NPROC', 'RSS'],
  ...['RTPRIO', 'RTTIME', 'SIGPENDING', 'STACK'],
].map((name) => `RLIMIT_${name}`)

/** The kernel keeps a terminal's size in 16-bit numbers. */
const MAX_TERMINAL_SIZE = 0xffff
const MAX_OOM_SCORE_ADJ = 1000n
/** The id that leaves a process the one that it has, which is root's (man 2 setresuid). runc refuses it, crun does not. */
const UNCHANGED_ID = 0xff_ff_ff_ff

/**
 * Throws INVALID_ARGUMENT, naming the field, for an invalid process; each runtime ignores some of these errors. Errors that
 * depend on the container, such as a missing program, are left to the runtime.
 */
export function checkProcess(process: Process): void {
  if ((process.Args[0] ?? '') === '') throw invalidField('process.args', 'no program')
  for (const arg of process.Args) checkText('process.args', arg)
  checkEnvironment(process.Env)
  if (!/^($|\/)/.test(process.Cwd)) {
    throw invalidField('process.cwd', `"${process.Cwd}", want an absolute path`)
  }
  checkText('process.cwd', process.Cwd)
  if (process.Capabilities !== undefined) checkCapabilities(process.Capabilities)
  checkRlimits(process.Rlimits)
  if (process.User !== undefined) checkUser(process.User)
  const { Height: height = 0, Width: width = 0 } = process.ConsoleSize ?? {}
  if (Math.max(height, width) > MAX_TERMINAL_SIZE) {
    throw invalidField('process.consoleSize', `${height} x ${width}, want at most ${MAX_TERMINAL_SIZE} each`)
  }
  if (process.OOMScoreAdj < -MAX_OOM_SCORE_ADJ || process.OOMScoreAdj > MAX_OOM_SCORE_ADJ) {
    throw invalidField('process.oomScoreAdj', `${process.OOMScoreAdj}, want -1000 to 1000`)
  }
}

/** Checks the environment. Errors name an entry by its index, because its content may be secret. */
function checkEnvironment(entries: readonly string[]): void {
  entries.forEach((entry, index) => {
    checkText('process.env', entry)
    if (entry.indexOf('=') < 1) throw invalidField('process.env', `Malformed OCI env entry, number ${index}`)
  })
}

function checkUser({ UID: uid, GID: gid, AdditionalGids: additionalGids }: User): void {
  const ids = { uid: [uid], gid: [gid], additionalGids }
  for (const [name, values] of Object.entries(ids)) {
    if (values.includes(UNCHANGED_ID)) {
      throw invalidField(`process.user.${name}`, `${UNCHANGED_ID}, want at most ${UNCHANGED_ID - 1}`)
    }
  }
}

function checkCapabilities(capabilities: LinuxCapabilities): void {
  for (const [set, names] of Object.entries(capabilities)) {
    for (const name of names) checkOneOf(`process.capabilities.${set}`, CAPABILITIES, name)
  }
}

function checkRlimits(rlimits: readonly POSIXRlimit[]): void {
  const seen = new Set<string>()
  for (const { Type: type, Soft: soft, Hard: hard } of rlimits) {
    checkOneOf('process.rlimits', RLIMITS, type)
    if (seen.has(type)) throw invalidField('process.rlimits', `${type} given twice`)
    seen.add(type)
    if (soft > hard) throw invalidField('process.rlimits', `${type}: the soft limit is above the hard one`)
  }
}
