import { RLIMITS } from '../../src/oci/check/check-process.ts'
import { DEVICE_RULES, DEVICES, FLAGS, NAMESPACES, PROPAGATIONS } from '../../src/oci/check/check-spec.ts'
import { SECCOMP_ARCHITECTURES, SHORT_NAMESPACES } from '../../src/oci/normalize-spec.ts'
import { OCI_VERSION } from '../../src/oci/runtime-config.ts'

const ANY_SOURCE = 'Go, rs, ctl, OCI'

/** The callers that send a word. */
type Sources = Readonly<Record<string, string>>

const NAMESPACE_SOURCES: Sources = {
  mount: 'Go, OCI',
  network: 'Go, OCI',
  mnt: 'rs, ctl',
  net: 'rs, ctl',
  ipc: ANY_SOURCE,
  uts: ANY_SOURCE,
  pid: 'ctl, OCI',
  cgroup: 'ctl, OCI',
  user: 'OCI',
  time: 'OCI',
}

/** An unbuffered character device is a character device (man 1 mknod). */
const UNBUFFERED: ReadonlyMap<string, string> = new Map([['u', 'c']])
const DEVICE_SOURCES: Sources = { b: 'ctl, OCI', c: 'ctl, OCI', p: 'ctl, OCI', u: 'OCI' }

type Row = readonly [word: string, forms: string, becomes: string, sources: string]

const HEAD = '| word | forms | becomes | source |\n|---|---|---|---|\n'

/** The words of the tables in the code, and those that the code handles one by one. Throws for a word without a source. */
export function callersWordsTable(): string {
  const rows = [
    ...rowsOf(
      '`linux.namespaces[].type`',
      [...NAMESPACES, ...SHORT_NAMESPACES.keys()],
      SHORT_NAMESPACES,
      NAMESPACE_SOURCES,
    ),
    ['`process.capabilities.*`', '`CAP_CHOWN`', 'the same', 'Go, OCI'],
    ['', '`CHOWN`', '`CAP_CHOWN`', 'rs, ctl'],
    ['', 'in quotes (`"CAP_CHOWN"`, as JSON); in any case', '`CAP_CHOWN`', 'Kata'],
    [
      '`process.rlimits[].type`',
      `${firstOf(RLIMITS, 'RLIMIT_NOFILE')} of the kernel`,
      'the same',
      ANY_SOURCE,
    ],
    ['`process.env[]`', '`NAME=value`, `NAME=`', 'the same', ANY_SOURCE],
    ['', '`=value`', 'passed over', 'Kata'],
    ['`linux.seccomp` actions, operators', '`SCMP_ACT_ERRNO`, `SCMP_CMP_EQ`', 'the same', 'ctl, OCI'],
    [
      '`linux.seccomp.architectures[]`',
      `${firstOf(SECCOMP_ARCHITECTURES, 'SCMP_ARCH_X86_64')} of libseccomp`,
      'the same',
      'ctl, OCI',
    ],
    ['', 'anything else', 'passed over', 'Kata'],
    ['`linux.seccomp.flags[]`', codes(FLAGS), 'the same, if the OCI runtime has it', 'OCI'],
    ['`linux.seccomp.syscalls[].errnoRet`', 'absent', 'EPERM', 'Go, OCI'],
    ['', '0, with every rule', 'absent: EPERM', 'rs, ctl'],
    ['', 'any other number', 'the same', 'ctl, OCI'],
    ['`linux.rootfsPropagation`', codes(PROPAGATIONS), 'the same', 'ctl, OCI'],
    [
      '`linux.devices[].fileMode`',
      'permissions, also with the type of the node (`0o20666`)',
      'the permissions',
      'Kata',
    ],
    ['', '0', "the mode of the guest's node at that path, else the runtime's default", 'OCI'],
    ...rowsOf('`linux.devices[].type`', DEVICES, UNBUFFERED, DEVICE_SOURCES),
    ['`linux.resources.devices[].type`', codes(DEVICE_RULES.filter(isAll)), '`a`', 'ctl, OCI'],
    ...rowsOf('', [...DEVICE_RULES.filter((type) => !isAll(type)), 'u'], UNBUFFERED, DEVICE_SOURCES),
    ['`linux.resources.devices[].access`', '`r`, `w`, `m` in any order', 'the same', 'ctl, OCI'],
    ['`linux.resources.devices[].major`, `.minor`', '0, -1', 'any', 'ctl, Kata'],
    [
      '`mounts[].type`, `.options[]`',
      'any; an option that the OCI runtime does not know is data for the file system',
      'the same; a mount of type `bind` without `bind` or `rbind` gets `rbind`',
      ANY_SOURCE,
    ],
    ['`linux.cgroupsPath`', '`/default/c1`, `pod/c1`', 'below the cgroup of all containers', 'Go, rs'],
    ['', 'empty', "the container's id", 'ctl'],
    ['', '`slice:prefix:name`', '`/slice/prefix/name`', 'Kata'],
    [
      '`ociVersion`',
      'any text: `1.0.2-dev` (Go, rs), `1.1.0-rc.1-test` (ctl)',
      `\`${OCI_VERSION}\`, which every runtime knows`,
      'Go, rs, ctl',
    ],
  ] satisfies Row[]
  return HEAD + rows.map(rowText).join('\n')
}

function rowText([word, ...cells]: Row): string {
  return `|${word === '' ? '' : ` ${word}`} | ${cells.join(' | ')} |`
}

/** One row for the words with the same sources; `changed` has the words that become another one. */
function rowsOf(
  field: string,
  words: readonly string[],
  changed: ReadonlyMap<string, string>,
  known: Sources,
): Row[] {
  const groups = Map.groupBy(words, (word) => sourceOf(known, word))
  return [...groups].map(([sources, group], index) => {
    const becomes = group.some((word) => changed.has(word))
      ? codes(group.map((word) => changed.get(word) ?? word))
      : 'the same'
    return [index === 0 ? field : '', codes(group), becomes, sources]
  })
}

function sourceOf(known: Sources, word: string): string {
  const sources = known[word]
  if (sources === undefined) throw new Error(`callers-words.md has no source of "${word}"`)
  return sources
}

const isAll = (type: string) => type === '' || type === 'a'

/** An empty word reads `empty`. */
function codes(words: readonly string[]): string {
  return words.map((word) => (word === '' ? 'empty' : `\`${word}\``)).join(', ')
}

function firstOf(words: readonly string[], first: string): string {
  if (!words.includes(first)) throw new Error(`the code does not know ${first}`)
  return `\`${first}\` and ${words.length - 1} others`
}
