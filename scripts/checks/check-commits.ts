import { spawnSync } from 'node:child_process'
import { SKIPPED } from './check-c-format.ts'

/** The last commit that was made before the rules. */
export const RULES_SINCE = '9844401d9cb853b3fe9bb3c318ecaf6443fc66c7'

/** The area prefixes of a subject: folders of the project. CONTRIBUTING.md lists the same. */
export const AREAS: readonly string[] = [
  ...['src', 'base', 'gen', 'os', 'oci', 'hotplug', 'rpc', 'settings', 'state'],
  ...['agent', 'boot', 'config', 'policy', 'transport', 'service'],
  ...['handlers', 'sandbox', 'container', 'process', 'stdio', 'oci-runtime', 'cgroup'],
  ...['storage', 'device', 'network', 'guest'],
  ...[
    'host',
    'controller',
    'hypervisor',
    'leases',
    'migration',
    'moves',
    'spec',
    'suspend',
    'qemu',
    'instance',
    'microvm',
    'client',
    'ctl',
    'image',
    'debian',
    'build',
    'rootfs',
    'native',
    'proto',
  ],
  ...['test', 'bench', 'docs', 'scripts', 'project', 'style'],
]

const MAX_SUBJECT_LENGTH = 72

/** Verbs whose imperative looks like another form. */
const IMPERATIVES_THAT_LOOK_OTHERWISE =
  /^(?:bring|ping|embed|exceed|feed|need|proceed|seed|shed|speed|succeed|bias|alias)$/

export interface Commit {
  readonly id: string
  readonly subject: string
  readonly parents: number
}

export function commitFaults({ id, subject, parents }: Commit): readonly string[] {
  if (parents > 1) return [`${id} "${subject}": merge commit, want a rebase`]
  const faults: string[] = []
  if (subject.length > MAX_SUBJECT_LENGTH) {
    faults.push(`${subject.length} characters, want at most ${MAX_SUBJECT_LENGTH}`)
  }
  const [, area, summary] = /^([a-z-]+): (\S.*)$/.exec(subject) ?? []
  if (area === undefined || summary === undefined) faults.push('no area, want "area: imperative summary"')
  else {
    if (!AREAS.includes(area)) faults.push(`unknown area "${area}", want one of CONTRIBUTING.md's list`)
    if (!beginsWithImperative(summary))
      faults.push('summary is not imperative, want "add", not "added" or "adds"')
  }
  if (subject.endsWith('.')) faults.push('ends with a period, want none')
  return faults.map((fault) => `${id} "${subject}": ${fault}`)
}

/** Checks only the ending of the first word, so a noun passes. */
function beginsWithImperative(summary: string): boolean {
  const [first = ''] = summary.split(/[\s,:;]/, 1)
  if (IMPERATIVES_THAT_LOOK_OTHERWISE.test(first)) return true
  return !/(?:ed|ing|[^su]s)$/.test(first)
}

/** Checks the commits after `since`. A repository that does not have `since` is skipped. */
export function checkCommits({ root, since }: { root: string; since: string }): {
  ok: boolean
  output: string
} {
  const git = (...args: readonly string[]) => spawnSync('git', ['-C', root, ...args], { encoding: 'utf8' })
  if (git('merge-base', '--is-ancestor', since, 'HEAD').status !== 0) {
    return {
      ok: true,
      output: `${SKIPPED}this copy of the repository does not reach back to ${since.slice(0, 7)}\n`,
    }
  }
  const { status, stdout, stderr } = git('log', '--format=%h%x09%P%x09%s', `${since}..HEAD`)
  if (status !== 0) return { ok: false, output: stderr }
  const faults = stdout
    .split('\n')
    .filter((line) => line !== '')
    .flatMap((line) => commitFaults(commitOf(line)))
  return { ok: faults.length === 0, output: faults.map((fault) => `${fault}\n`).join('') }
}

function commitOf(line: string): Commit {
  const [id = '', parents = '', ...subject] = line.split('\t')
  return { id, subject: subject.join('\t'), parents: parents.split(' ').length }
}

if (import.meta.main) {
  const { ok, output } = checkCommits({ root: import.meta.dirname, since: RULES_SINCE })
  process.stdout.write(output)
  process.exitCode = ok ? 0 : 1
}
