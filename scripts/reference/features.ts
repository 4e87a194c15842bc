import { documentSchema } from '../../src/host/machine/document/document.ts'
import { isObject } from '../../src/host/machine/document/shape.ts'
import { FEATURES, NOT_BUILT } from '../../src/host/machine/features/table.ts'

/** The features of documents with their fields, and those that are refused by name. */
export function featuresPage(): string {
  const rows = FEATURES.map(
    ({ name, shape, summary }) => `| \`${name}\` | ${summary} | ${fieldsOf(shape.schema)} |`,
  )
  const refused = Object.entries(NOT_BUILT).map(([name, what]) => `| \`${name}\` | ${what} |`)
  return [
    '# Features of machines',
    '',
    'Made by `npm run gen`, in the order in which they are expanded. [Machine](../machine.md) says what documents are.',
    '',
    ...['| feature | what | fields |', '|---|---|---|', ...rows],
    '',
    'Known and not built yet, so refused by name:',
    '',
    ...['| feature | what |', '|---|---|', ...refused],
    '',
  ].join('\n')
}

/** The fields of the long form; those of an item for a list. */
function fieldsOf(schema: unknown): string {
  if (!isObject(schema)) return ''
  if (Array.isArray(schema.anyOf)) return fieldsOf(schema.anyOf.at(-1))
  if (schema.items !== undefined) return `each: ${fieldsOf(schema.items)}`
  const properties = isObject(schema.properties) ? schema.properties : {}
  // What is refused in every form is no field.
  const allowed = Object.entries(properties).filter(
    ([, field]) => !(isObject(field) && field.not !== undefined),
  )
  return allowed.map(([name]) => `\`${name}\``).join(', ')
}

export function schemaPage(): string {
  return `${JSON.stringify(documentSchema, undefined, 1)}\n`
}
