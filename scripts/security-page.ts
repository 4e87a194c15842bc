import { RUNTIME_ADVISORIES } from '../src/oci/runtime-advisories.ts'

const HEAD = `| advisory | what a container comes by | open before | repaired by Debian in |
|---|---|---|---|
`
const END = '\n\n'

/** The text of docs/security.md, whose table of advisories is made anew from the list. */
export function securityPage(page: string): string {
  const start = page.indexOf('| advisory |')
  const rows = RUNTIME_ADVISORIES.map(
    ({ id, runtime, allows, fixedIn, backports }) =>
      `| ${id} | ${allows} | ${runtime} ${fixedIn.join(', ')} | ${backports.join(', ') || '–'} |`,
  )
  return `${page.slice(0, start)}${HEAD}${rows.join('\n')}${page.slice(page.indexOf(END, start))}`
}
