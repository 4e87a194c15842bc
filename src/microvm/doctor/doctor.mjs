import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { delimiter, join } from 'node:path'
import { HOST_PACKAGES, nameIn } from './packages.mjs'

/**
 * What this host has, or lacks: `detail` says how it has it, or what is missing and the remedy.
 * @typedef {object} Finding
 * @property {string} name
 * @property {'ok' | 'missing'} state
 * @property {boolean} isNeeded
 * @property {string} detail
 */

/** The host as the checks see it. @typedef {ReturnType<typeof thisHost>} Host */

/** By which apt checks a package that it fetches. */
const DEBIAN_KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** How long a daemon may take to greet. */
const CONNECT_MS = 2000

/**
 * Prints a line for each finding, or with `json` one value a line. Plain JavaScript, because `./microvm doctor` runs before
 * anything is set up.
 * @param {{ json: boolean, socket: string, print: (text: string) => void, host?: Host }} options
 * @returns {Promise<number>} the exit status: 1 when something needed is missing
 */
export async function doctor({ host = thisHost(), json, print, socket }) {
  const findings = [...hostFindings(host), await daemonFinding(socket)]
  for (const finding of findings) print(json ? `${JSON.stringify(finding)}\n` : lineOf(finding))
  return findings.some(({ isNeeded, state }) => isNeeded && state === 'missing') ? 1 : 0
}

/** @param {Finding} finding */
function lineOf({ detail, isNeeded, name, state }) {
  return `${state.padEnd(7)}  ${name}${state === 'missing' && !isNeeded ? ' (optional)' : ''}: ${detail}\n`
}

function thisHost() {
  return {
    osRelease: textOf('/etc/os-release'),
    dpkgStatus: textOf('/var/lib/dpkg/status'),
    cpuinfo: textOf('/proc/cpuinfo'),
    isWritable: (/** @type {string} */ path) => hasAccess(path, constants.R_OK | constants.W_OK),
    exists: (/** @type {string} */ path) => existsSync(path),
    path: process.env.PATH ?? '',
    uid: process.getuid?.() ?? -1,
    succeeds: (/** @type {readonly string[]} */ [program = '', ...args]) =>
      spawnSync(program, args, { stdio: 'ignore', timeout: CONNECT_MS }).status === 0,
  }
}

/**
 * @param {Host} host
 * @returns {readonly Finding[]}
 */
export function hostFindings(host) {
  return [...packageFindings(host), kvm(host), vsock(host), cgroups(host), pidNamespace(host), root(host)]
}

/** @param {Host} host */
function packageFindings({ dpkgStatus, osRelease }) {
  const release = /^VERSION_ID="?(\d+)/m.exec(osRelease)?.[1] ?? ''
  const installed = new Set(
    [...dpkgStatus.matchAll(/^Package: (\S+)\nStatus: \S+ \S+ installed$/gm)].map(([, name]) => name),
  )
  return HOST_PACKAGES.map((wanted) => {
    const [name, { isNeeded, why }] = [nameIn(wanted, release), wanted]
    const what = name === wanted.name ? why : `${why} (${wanted.name})`
    return installed.has(name)
      ? ok(`package ${name}`, isNeeded, what)
      : missing(`package ${name}`, isNeeded, `${what}; want apt-get install ${name}`)
  })
}

/** @param {Host} host */
function kvm({ cpuinfo, isWritable }) {
  const isEmulated = 'machines are emulated, and slow; want'
  if (!/^flags\s*:.*\b(vmx|svm)\b/m.test(cpuinfo))
    return missing(
      'KVM',
      false,
      `no vmx or svm in /proc/cpuinfo; ${isEmulated} them in the firmware, or nested in a VM`,
    )
  if (!isWritable('/dev/kvm'))
    return missing(
      'KVM',
      false,
      `/dev/kvm cannot be opened; ${isEmulated} modprobe kvm_intel or kvm_amd, and root or group kvm`,
    )
  return ok('KVM', false, '/dev/kvm')
}

/** @param {Host} host */
function vsock({ exists, isWritable, path }) {
  if (isWritable('/dev/vhost-vsock')) return ok('vsock', false, '/dev/vhost-vsock')
  const daemon = path
    .split(delimiter)
    .map((folder) => join(folder, 'vhost-device-vsock'))
    .find(exists)
  if (daemon !== undefined) return ok('vsock', false, daemon)
  // As findVsockDaemon does (src/host/qemu/vsock/choose-link.ts).
  if (exists(DEBIAN_KEYS)) return ok('vsock', false, 'vhost-device-vsock, which is fetched from Debian sid')
  return missing(
    'vsock',
    false,
    `neither /dev/vhost-vsock nor vhost-device-vsock, and no ${DEBIAN_KEYS} to fetch the daemon; want modprobe vhost_vsock and root, or the daemon in PATH`,
  )
}

/** @param {Host} host */
function cgroups({ exists }) {
  if (exists('/sys/fs/cgroup/cgroup.controllers')) return ok('cgroups', false, 'v2')
  if (exists('/sys/fs/cgroup/memory')) return ok('cgroups', false, 'v1')
  return missing('cgroups', false, 'nothing at /sys/fs/cgroup; want mount -t cgroup2 none /sys/fs/cgroup')
}

/** @param {Host} host */
function pidNamespace({ succeeds, uid }) {
  const user = uid === 0 ? [] : ['--user', '--map-root-user']
  if (succeeds(['unshare', ...user, '--pid', '--fork', 'true']))
    return ok('PID namespaces', true, 'can be made')
  return missing(
    'PID namespaces',
    true,
    `cannot be made, and each machine has its own; want ${uid === 0 ? 'CAP_SYS_ADMIN (in a container, a privileged one)' : 'root, or sysctl kernel.unprivileged_userns_clone=1'}`,
  )
}

/** @param {Host} host */
function root({ uid }) {
  if (uid === 0) return ok('root', false, 'taps, shares and tenants can be used')
  return missing('root', false, `user ${uid}; taps, shares and tenants want root`)
}

/**
 * @param {string} socket
 * @returns {Promise<Finding>}
 */
async function daemonFinding(socket) {
  const none = `none at ${socket}; want ./microvm daemon`
  const client = connect(socket)
  const failure = await new Promise((resolve) => {
    // A server of HTTP/2 speaks first.
    client.once('data', () => resolve(undefined)).once('error', () => resolve(none))
    client.setTimeout(CONNECT_MS, () =>
      resolve(`the one at ${socket} does not answer; it is stopped or hangs`),
    )
  })
  client.destroy()
  return failure === undefined ? ok('daemon', false, socket) : missing('daemon', false, failure)
}

/** @returns {Finding} */
function ok(/** @type {string} */ name, /** @type {boolean} */ isNeeded, /** @type {string} */ detail) {
  return { name, state: 'ok', isNeeded, detail }
}

/** @returns {Finding} */
function missing(/** @type {string} */ name, /** @type {boolean} */ isNeeded, /** @type {string} */ detail) {
  return { name, state: 'missing', isNeeded, detail }
}

/** @param {string} path */
function textOf(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    // Another distribution, or a container without it: what needs the file is missing then.
    return ''
  }
}

/**
 * @param {string} path
 * @param {number} mode
 */
function hasAccess(path, mode) {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}
