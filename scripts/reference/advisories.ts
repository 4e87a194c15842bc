import { RUNTIME_ADVISORIES } from '../../src/oci/runtime-advisories.ts'

const HEAD = `| advisory | what a container comes by | open before | repaired by Debian in |
|---|---|---|---|
`
export function advisoriesTable(): string {
  const rows = RUNTIME_ADVISORIES.map(
    ({ id, runtime, allows, fixedIn, backports }) =>
      `| ${id} | ${allows} | ${runtime} ${fixedIn.join(', ')} | ${backports.join(', ') || '–'} |`,
  )
  return `${HEAD}${rows.join('\n')}`
}
